"""The HTTP service: gateway, guard API and what is seen of them from outside."""
