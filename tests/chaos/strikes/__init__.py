"""What chaos does to the service: it kills processes, cuts links, moves clocks, loses messages."""
