"""Whether a text is English, by a fixed rule over its letters and its commonest words.

The published filter of AM-DeepSeek-R1-Distilled keeps a row when langdetect, without a
seed, calls its first message English, and leaves it out when langdetect finds nothing to
go by (M: sft/prepare_ammath_dataset.py). langdetect draws at random, so without a seed
its verdicts on short texts change from run to run. This rule draws nothing.

LaTeX commands do not count, and of the rest only words of two letters or more:

* no such word: ``no_language``;
* more letters outside the Latin script than in it: not English;
* otherwise the language with the most function words wins, English at a tie; where no
  language has one, the text is English if all its letters are ASCII.
"""

import re
import unicodedata

LATEX_COMMAND = re.compile(r"\\[A-Za-z]+")
WORD = re.compile(r"[^\W\d_]{2,}")
# Function words. One that a language shares with English counts for both.
ENGLISH_WORDS = (
    "the of and to is are was be that this for with on by from as at it if or not what which who "
    "how when where why can could would should will you your have has had all each find given let "
    "than then there their they these its into about between using write some any but do does"
)
ENGLISH = frozenset(ENGLISH_WORDS.split())
OTHERS = {
    name: frozenset(words.split())
    for name, words in {
        "czech": "je se na že pro jako které jsou nebo aby podle při ale byl být jeho však když",
        "dutch": "de het een van en dat zijn voor met niet op aan wat wordt deze hoeveel naar ook",
        "finnish": "ja on että ei se mikä kuinka oli joka mutta kun ovat kanssa sekä tai voi olla",
        "french": "le la les des une est et que qui pour dans du pas sur avec sont au par ce cette",
        "german": "der die das und ist ein eine den dem des nicht mit von zu auf für wie sich wird",
        "hungarian": "az és hogy nem egy van mennyi ez volt csak meg vagy mint ha milyen lesz kell",
        "indonesian": "yang dan di ini itu untuk dengan dari adalah pada tidak dalam berapa apa ke",
        "italian": "il di che la un una per del della sono gli le con nel dei quanto come non",
        "norwegian": "og er det som av ikke til har hvor mange hva med på en et kan for den",
        "polish": "jest się nie na że do jak ile czy od oraz przez dla są który które jeśli po",
        "portuguese": "que de os as um uma do da em para com não por dos das se qual são mais",
        "romanian": "și este în care un nu cu pe din să la mai sunt pentru câte ce cât are fi",
        "spanish": "que de el la los las en un una por con para del se es cuál son no como su",
        "swedish": "och att det som är på av inte för med den har ett en hur vad många kan till",
        "turkish": "ve bir bu için ile kaç olarak olan ne da de en çok gibi daha mi kadar sonra",
        "vietnamese": "là và của có một các cho được không trong với này những để khi bao nhiêu",
    }.items()
}


def verdict(text: str) -> str | None:
    """None for an English text, else the reason to drop it."""
    plain = LATEX_COMMAND.sub(" ", unicodedata.normalize("NFC", text).lower())
    words = WORD.findall(plain)
    if not words:
        return "no_language"
    letters = "".join(words)
    if 2 * sum(map(_is_latin, letters)) < len(letters):
        return "not_english"
    english = sum(word in ENGLISH for word in words)
    other = max(sum(word in known for word in words) for known in OTHERS.values())
    if english == other == 0:
        return None if letters.isascii() else "not_english"
    return None if english >= other else "not_english"


def _is_latin(letter: str) -> bool:
    code = ord(letter)
    return code < 0x250 or 0x1E00 <= code < 0x1F00 or 0x2C60 <= code < 0x2C80
