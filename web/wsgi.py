"""The WSGI entry: `gunicorn web.wsgi:application`."""

from shared.config.settings import load_settings
from web.app import create_app

application = create_app(load_settings())
