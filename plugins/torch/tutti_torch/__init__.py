"""The compiled backend of tutti for torch. Import tutti.torch instead."""
