import lzma
import re
from pathlib import Path

import pytest

from model.spelling import modernise_german

CHANGED = """
daß dass, Daß Dass, sodaß sodass, DAß DASS, muß muss, mußte musste, müßten müssten, gemußt gemusst, Muß Muss
Fluß Fluss, Einfluß Einfluss, flußabwärts flussabwärts, beeinflußt beeinflusst, Schluß Schluss, Beschluß Beschluss
Schlußfolgerung Schlussfolgerung, schlußendlich schlussendlich, Ausschuß Ausschuss, Zuschuß Zuschuss, Schuß Schuss
bißchen bisschen, Biß Biss, Gebiß Gebiss, Imbiß Imbiss, Riß Riss, gewiß gewiss, Gewißheit Gewissheit, ißt isst, iß iss
vergißt vergisst, frißt frisst, mißt misst, Mißbrauch Missbrauch, Mißerfolg Misserfolg, Kompromiß Kompromiss
Narzißmus Narzissmus, Prozeß Prozess, Kongreß Kongress, Streß Stress, Exzeß Exzess, Expreß Express, preßt presst
eßbar essbar, Eßzimmer Esszimmer, meßbar messbar, vergeßlich vergesslich, unermeßlich unermesslich, Fairneß Fairness
Rußland Russland, rußlandfreundlich russlandfreundlich, häßlich hässlich, gräßlich grässlich, verläßlich verlässlich
unpäßlich unpässlich, wäßrig wässrig, läßt lässt, verläßt verlässt, Fäßchen Fässchen, Haß Hass, verhaßt verhasst
naß nass, Naß Nass, Paß Pass, Reisepaß Reisepass, paßt passt, angepaßt angepasst, Faß Fass, gefaßt gefasst, laß lass
Anlaß Anlass, veranlaßt veranlasst, Erlaß Erlass, blaß blass, kraß krass, Baß Bass, Kompaß Kompass, Elsaß Elsass
bewußt bewusst, Bewußtsein Bewusstsein, wußte wusste, wüßte wüsste, gewußt gewusst, Kuß Kuss, küßt küsst, Nuß Nuss
Genuß Genuss, Guß Guss, Erguß Erguss, Verdruß Verdruss, Nüßchen Nüsschen, Schloß Schloss, schloß schloss
beschloß beschloss, Roß Ross, Sproß Spross, verdroß verdross, goß goss, genoß genoss, Geschoß Geschoss, floß floss
schoß schoss, erschoß erschoss, Koloß Koloss, Amboß Amboss, Boß Boss, Schlößchen Schlösschen, Sprößling Sprössling
Schößling Schössling, Reißverschluß Reißverschluss, Großprozeß Großprozess
"""
UNCHANGED = """
Straße groß größer Großmutter Maß Maßnahme gemäß mäßig regelmäßig maß Ausmaß Fuß Füße Fußball barfuß Gruß Grüße grüßen
grüßt begrüßt heiß heißt heißen weiß weißt Weißbuch beißen beißt zerreißen zerreißt reißen dreißig außer außen äußern
außerdem draußen Preußen schließen schließt schließlich gießen gießt genießen fließen fließt ließ ließt ließest
verließ hieß stieß stoßen Stoß stößt Verstoß Spaß Späße spaßig Mordsspaß süß Süßigkeit versüßt büßen büßt Buße Bußgeld
unbußfertig Ruß Ruße Floß Flöße bloß entblößt Schoß Mutterschoß Schoßhund Kloß Soße saß besaß saßen säße aß aßen äße
vergaß vergäße fraß Vielfraß Gefäß Gesäß Fleiß fleißig Schweiß Muße müßig Müßiggang scheußlich Strauß Geißel Grieß
Spieß Meißel Schloßen Theiß Gauß Eiweiß größten Größchen Masse dass Fluss Wasser Missouri
"""


@pytest.mark.parametrize("pair", re.split(r",\s*|\n", CHANGED.strip()))
def test_short_vowels_take_ss(pair: str) -> None:
    old, new = pair.split()
    assert modernise_german(old) == new


@pytest.mark.parametrize("word", UNCHANGED.split())
def test_long_vowels_and_new_spelling_stay(word: str) -> None:
    assert modernise_german(word) == word


def test_every_word_of_a_text_is_read_by_itself() -> None:
    old = "Er wußte, daß der Fluß – „naß“ und groß – im Elsaß fließt; das Floß floß ins MASS-DAß."
    new = "Er wusste, dass der Fluss – „nass“ und groß – im Elsass fließt; das Floß floss ins MASS-DASS."
    assert modernise_german(old) == new
    assert modernise_german(new) == new


def test_texts_of_today_stay_and_old_ones_lose_their_commonest_forms(data_folder: Path) -> None:
    def words(name: str) -> list[str]:
        path = data_folder / "translate-en-de" / f"{name}.tsv.xz"
        with lzma.open(path, "rt", encoding="utf-8") as lines:
            return [word for line in lines for word in re.findall(r"\w*ß\w*", line.split("\t")[1])]

    today, old = words("wikipedia-post-edited"), words("europarl")
    assert sum(modernise_german(word) != word for word in today) < 0.01 * len(today)
    assert sum(modernise_german(word) != word for word in old) > 0.3 * len(old)
    rest = {modernise_german(word).lower() for word in old}
    assert not rest & {"daß", "muß", "läßt", "mußte", "müßte", "bewußt", "beschluß", "ausschuß", "prozeß", "einfluß"}
