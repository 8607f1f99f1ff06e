"""`python -m promptguard` is the `promptguard` command."""

from promptguard.cli import main

if __name__ == "__main__":
    main()
