"""Ordinary messages of different lengths, to time turns with."""

from __future__ import annotations

_TALK = """
hi

what's a good substitute for buttermilk in pancakes?

Rewrite this so it sounds less angry: we have asked three times and nobody has come to look at
the boiler.

Can you explain how a bicycle stays upright when it is moving but falls over when it stands
still? My daughter asked and I realised that I have no idea.

I have a CSV with two columns, date and amount. Some dates are day first and some are month
first, and I cannot tell which from the file alone. The amounts use a comma as the decimal mark
in about half of the rows. What would you check first, and how would you make sure that nothing
is changed without my seeing it? I would rather have a list of doubtful rows than a clever guess.

thanks, that worked

and in Python?

Plan four days in Lisbon for two people who walk slowly, like tiles and old trams, do not eat
meat and want to be in bed by ten. We arrive on a Sunday evening and leave on a Friday morning.
Put the furthest places on the days with the best trains. No museums on Monday, most of them are
closed. If there is a choice between famous and quiet, take quiet.

Which of the two would you take if it rains?

Here is my cover letter. Tell me only what is unclear, do not rewrite it. I have worked for six
years in a small archive, mostly on photographs. I have catalogued about eleven thousand of them,
and I wrote the rules by which the others do it now. I would like to work with people again,
which is why I am applying for the reading room and not for the stacks.
"""
MESSAGES = tuple(_TALK.strip().split("\n\n"))
REPLIES = ("Of course.", "Here is one way to do it.", "It depends on what you have at hand.")
