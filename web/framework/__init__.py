"""What every route uses: declaration, authentication, request context, admission, rendering."""
