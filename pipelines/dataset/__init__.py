"""Operations on a published dataset: verify, load, random access and diff."""
