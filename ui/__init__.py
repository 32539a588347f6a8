"""The command line and the operator screen."""
