"""Titles, names and journals of generated records: plausible, and the same for the same number."""

import random

_FINDINGS = ("Effects of", "A cohort study of", "Mechanisms of", "Long-term outcomes after", "A meta-analysis of")
_SUBJECTS = (
    "sleep",
    "gut microbiota",
    "vitamin D",
    "β-blockers",
    "air pollution",
    "statins",
    "gene therapy",
    "exercise",
)
_CONDITIONS = (
    "hypertension",
    "asthma",
    "type 2 diabetes",
    "depression",
    "Alzheimer's disease",
    "<i>E. coli</i> sepsis",
)
_FAMILIES = ("García", "Müller", "Nguyen", "Okafor", "Smith", "Tanaka", "Østergaard", "王", "Ivanova", "O'Brien")
_GIVEN = ("Ana", "Bo", "Chidi", "Dana", "Emi", "Farid", "Gro", "Hua", "Ines", "Jon")
_JOURNALS = ("Journal of Demonstrations", "Annals of Generated Medicine", "Acta Exempli", "Demo Letters")
_SENTENCE = "We studied {subject} in {people} people with {condition} and found a difference of {percent} percent. "


class Wording:
    """What is written about the record with this number."""

    def __init__(self, number: int) -> None:
        chance = random.Random(number)
        self.subject, self.condition = chance.choice(_SUBJECTS), chance.choice(_CONDITIONS)
        self.title = f"{chance.choice(_FINDINGS)} {self.subject} in {self.condition}"
        self.authors = [(chance.choice(_GIVEN), chance.choice(_FAMILIES)) for _ in range(chance.randrange(1, 6))]
        self.journal = chance.choice(_JOURNALS)
        self.volume, self.issue = str(chance.randrange(1, 90)), str(chance.randrange(1, 13))
        self.first_page = chance.randrange(1, 2000)
        self.abstract = "".join(
            _SENTENCE.format(
                subject=self.subject,
                people=chance.randrange(20, 9000),
                condition=self.condition,
                percent=chance.randrange(1, 60),
            )
            for _ in range(4)
        )
        self.cited_by = chance.randrange(0, 300)
