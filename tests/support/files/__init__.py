"""What tests of file routes use: an application over a store, requests, bodies and clients."""
