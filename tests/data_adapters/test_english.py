"""The English filter of AM-DeepSeek-R1-Distilled."""
# ruff: noqa: RUF001

import pytest

from instella.data.adapters.english import ENGLISH, OTHERS, verdict

OTHER_LANGUAGES = {
    "chinese": "已知函数f(x)在区间上单调递增，求实数a的取值范围。",
    "japanese": "次の方程式を解き、xの値を求めなさい。",
    "korean": "다음 방정식을 풀고 x의 값을 구하세요.",
    "russian": "Найдите сумму всех корней уравнения.",
    "greek": "Να βρείτε το άθροισμα των ριζών της εξίσωσης.",
    "arabic": "أوجد مجموع جذور المعادلة التالية",
    "hindi": "निम्नलिखित समीकरण को हल करें",
    "french": "Combien de solutions a cette équation dans les nombres réels ?",
    "german": "Wie viele Lösungen hat die Gleichung, und wie groß ist der Wert von x?",
    "spanish": "¿Cuál es la suma de los números que son primos menores que diez?",
    "italian": "Qual è la somma delle radici della seguente equazione, con x che non è zero?",
    "portuguese": "Qual é a soma dos números que são primos e menores do que dez?",
    "dutch": "Wat is de som van het aantal dat niet door drie deelbaar is?",
    "swedish": "Hur många lösningar har ekvationen och vad är summan av dem?",
    "polish": "Ile jest liczb, które są mniejsze od dziesięciu, jeśli nie ma wśród nich zera?",
    "czech": "Kolik je čísel, která jsou menší než deset, když mezi nimi není nula, a jaké jsou?",
    "turkish": "Bu denklem için kaç çözüm var ve bir sayı olarak toplamı ne kadar?",
    "vietnamese": "Tổng của các số nguyên tố nhỏ hơn mười là bao nhiêu và có không?",
    "indonesian": "Berapa jumlah bilangan yang tidak habis dibagi tiga dan lebih kecil dari ini?",
}
ENGLISH_TEXTS = [
    "What is the sum of all primes below ten?",
    "Solve $\\frac{x}{2} = 4$ for $x$.",
    "Simplify $\\sqrt{8}$",
    "Translate this sentence to Chinese for me: 你好",
    "Write a Python function that returns the list of the n smallest values.\n```python\ndef f(n): pass\n```",
    "Who wrote Les Misérables, and in which year?",
    "INTEGRATE COS(X)",
    "Let $ABCD$ be a square. Find the area of triangle $ABC$ in terms of $AB$.",
]


@pytest.mark.parametrize("language", OTHER_LANGUAGES)
def test_other_languages_are_dropped(language: str) -> None:
    assert verdict(OTHER_LANGUAGES[language]) == "not_english"


@pytest.mark.parametrize("text", ENGLISH_TEXTS)
def test_english_is_kept(text: str) -> None:
    assert verdict(text) is None


@pytest.mark.parametrize("text", ["", " \n", "2 + 2 = ?", "$x$", "\\frac{1}{2}", "123 \u00b1 5"])
def test_nothing_to_go_by(text: str) -> None:
    assert verdict(text) == "no_language"


def test_accents_count_alike_composed_or_not() -> None:
    assert verdict("re\u0301ponse a\u0300 calculer") == verdict("r\u00e9ponse \u00e0 calculer")
    assert verdict("r\u00e9ponse \u00e0 calculer") == "not_english"


def test_the_words_are_words_that_the_rule_can_meet() -> None:
    for words in (ENGLISH, *OTHERS.values()):
        assert all(word == word.lower() and len(word) > 1 and word.isalpha() for word in words)
