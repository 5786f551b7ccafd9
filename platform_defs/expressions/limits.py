"""Bounds that keep a template, however it was written, cheap to compile and to render."""

TEMPLATE_LENGTH = 16_384
PATH_LENGTH = 1_024
PATTERN_LENGTH = 128
CHECK_LENGTH = 512
NUMBER_LENGTH = 40
# of calls within calls, and of containers within containers in a rendered JSON body
DEPTH = 32
# characters of one rendered text, and of one rendered body
OUTPUT_LENGTH = 1_048_576
