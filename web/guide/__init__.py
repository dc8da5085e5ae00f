"""The guide: the built website of the documentation, served below `/docs/guide`. `make guide` builds it."""
