"""Support for tests of file routes: an application over a store, requests, bodies and clients."""
