"""Published trees of Medusa, as rank tuples: what to draft is a choice made once, on other data, for all prompts.

A choice names a node by the ranks on its path: "012" is the third likeliest token of the third head, after the second
likeliest of the second, after the likeliest of the first. They stand in their published order, that of a greedy
search by accuracy (section 2.3.3), in which a parent comes before its children: the first n are a tree of n nodes.

Source: Cai et al. 2024, and medusa/model/medusa_choices.py of FasterDecoding/Medusa (Apache-2.0) at e2a5d20.
"""

from __future__ import annotations

_PUBLISHED = {
    "mc_sim_7b_63": """
        0 00 1 01 2 000 10 02 3 03 4 04 20 05 001 5 06 6 07 010 11 7 08 002 30 09 8 9 100 020 12 003 40 21 004 005 0000 011 006
        030 50 13 007 008 009 60 040 14 70 012 200 31 22 80 050 15 101 021 90 060 0001 16 070
    """,
    "vicuna_7b_stage2": """
        0 00 1 01 000 10 2 02 001 03 3 010 20 4 002 04 11 100 0000 5 003 05 020 30 011 06 6 07 004 40 12 08 7 030 0001 005 21
        006 101 0010 200 50 09 012 8 040 021 13 007 0002 008 110 0100 60 9 013 0003 102 050 31 0020 70 14
    """,
    "vicuna_7b_stage1": """
        0 00 1 2 01 10 3 02 4 000 03 5 20 04 6 05 11 001 7 30 06 8 9 010 07 08 40 002 12 09 21 50 100 003 13 020 011 004 60 14
        005 22 030 31 006 70 15 101 200 007 80 0000 41 012 040 90 021 23 16 008 050 32 51
    """,
    "vicuna_13b_stage2": """
        0 00 1 000 01 10 2 02 001 010 3 03 20 002 0000 04 100 11 4 003 05 020 5 30 011 06 004 0001 07 005 12 0010 030 101 40 006
        08 200 09 6 7 21 50 012 0002 8 040 0100 021 007 110 13 0020 9 008 050 0003 009 013 102 0011 300 1000
    """,
    "vicuna_13b_stage1": """
        0 00 1 01 2 10 000 02 3 03 4 20 04 001 05 5 11 010 6 06 002 7 30 8 07 08 100 003 40 12 9 09 21 020 004 13 011 005 50 030
        0000 006 60 14 200 012 31 040 101 22 007 15 70 008 80 050 009 021 110 013 41 23 16
    """,
    "vicuna_33b_stage2": """
        0 00 1 01 000 10 2 02 001 03 3 010 20 04 4 002 11 100 05 5 0000 003 30 020 06 011 6 004 07 7 12 40 8 030 005 0001 08 21
        09 101 200 006 50 0010 13 012 040 007 021 9 110 0002 60 008 0100 70 013 050 14 009 31 102 22
    """,
    "vicuna_33b_stage1": """
        0 1 00 2 01 3 10 4 02 5 03 000 6 04 20 7 11 05 30 8 9 06 07 001 12 40 010 08 09 21 002 50 13 003 100 14 60 020 31 22 004
        70 011 15 41 005 030 90 80 16 006 23 012 32 040 200 17 101 007 51 24 008 021
    """,
    "zephyr_stage2": """
        0 00 1 01 2 000 10 02 3 03 4 20 001 04 5 05 010 11 6 002 30 06 7 07 08 003 100 09 020 12 40 8 9 21 011 004 0000 50 030
        13 005 006 60 200 101 012 040 14 31 22 007 70 021 008 013 050 15 009 110 0001 0010 41 23
    """,
}

TREES: dict[str, tuple[tuple[int, ...], ...]] = {
    name: tuple(tuple(map(int, choice)) for choice in choices.split()) for name, choices in _PUBLISHED.items()
}
