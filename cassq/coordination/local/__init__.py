"""The processes of one machine behind the coordination port."""
