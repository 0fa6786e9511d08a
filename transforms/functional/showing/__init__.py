"""What a person sees of records: pictures with what is on them, and text that cannot deceive."""
