"""``python -m labelgap`` is the command line."""

from labelgap.cli import main

if __name__ == "__main__":
    main()
