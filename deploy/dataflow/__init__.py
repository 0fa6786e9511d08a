"""The Dataflow Flex Template: its container, what it launches, and what it accepts."""
