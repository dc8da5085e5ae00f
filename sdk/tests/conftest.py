"""What every test of the SDK may ask for."""

from sdk.tests.forms import connect

__all__ = ["connect"]
