"""Names that are the same in English and German text, to be put in the place of others."""

from __future__ import annotations

import numpy as np


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


MALE = _words("""
    Adam Alan Alexander Ali Andreas Anton Arthur Ben Bernd Boris Brian Carlos Charles Christian Daniel David
    Dennis Dirk Emil Eric Felix Florian Frank Fred Georg George Gustav Hans Harry Heinz Henry Igor Ivan Jack Jakob
    James Jan Jim Jonas Joseph Jürgen Karl Kevin Klaus Kurt Leon Liam Logan Luca Ludwig Mario Mark Martin Michael
    Mohammed Nick Noah Oliver Oscar Otto Patrick Paul Pedro Peter Philipp Ralf Ravi Richard Robert Roman Ryan Sami
    Simon Stefan Steve Sven Ted Theo Tim Tobias Udo Viktor Walter Werner William Yusuf Ziri
""")
FEMALE = _words("""
    Alice Amelia Amina Andrea Angela Anna Anne Barbara Beate Birgit Camilla Carla Caroline Charlotte Clara Claudia
    Diana Elena Elisabeth Ella Emily Emma Erika Eva Fatima Frieda Gabi Greta Hanna Heidi Helen Helga Ida Ingrid
    Irene Isabel Jane Jessica Julia Karin Kate Katharina Laila Laura Lea Leila Lena Linda Lisa Lucy Maja Margarete
    Maria Marie Martha Melanie Mia Monika Nadia Natalie Nina Nora Olga Olivia Paula Petra Rita Rosa Ruth Sabine
    Sandra Sara Sofia Sonja Stella Susanne Tanja Tina Ursula Vera Yanni Zoe
""")
CITIES = _words("""
    Berlin Hamburg Paris London Madrid Boston Chicago Toronto Sydney Osaka Kyoto Lagos Nairobi Lima Bogotá Oslo
    Stockholm Helsinki Dublin Amsterdam Zürich Basel Bern Leipzig Dresden Bremen Stuttgart Frankfurt Dortmund Graz
    Linz Salzburg Budapest Istanbul Ankara Dubai Delhi Mumbai Manila Jakarta Seattle Denver Houston Dallas Miami
    Montreal Quebec Porto Bilbao Valencia Turin Verona Lyon Bordeaux Nantes
""")
_BEGINNINGS = _words("""
    Ab Ar Bar Bel Bor Bran Cal Dal Dem Eld Fer Gar Hal Har Kar Kel Kor Lan Lor Mal Mar Mel Nor Pel Ram Ros San Sol
    Tal Tor Val Vor Wal Zan
""")
_MIDDLES = _words("""
    a e i o u an en in on ar er or al el il
""")
_ENDS = _words("""
    berg dorf feld mann stein ton ford ley worth ski sen son lin ner ker dez rov ti ri na ka mura to
""")


def made_up_surname(generator: np.random.Generator) -> str:
    """An invented name, which can only be copied in translation."""
    return "".join(str(generator.choice(parts)) for parts in (_BEGINNINGS, _MIDDLES, _ENDS))
