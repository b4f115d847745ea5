import pytest

from feval.answers import canonical, extract
from feval.answers.latex import LONGEST, comparable


@pytest.mark.parametrize(
    ("spellings", "key"),
    [
        (
            [
                "\\frac{1}{2}", "\\frac12", "\\dfrac 12", "\\tfrac{1}{2}", "1/2", "0.5", ".50", "½",
                "$\\frac{1}{2}$.",
                "\\boxed{\\frac{1}{2}}",
            ],
            "0.5",
        ),
        (["\\frac{1}{3}", "1/3", "\\frac 1 3", "2/6"], "1/3"),
        (["-\\frac{1}{3}", "\\frac{-1}{3}", "-1/3", "−1/3"], "-1/3"),
        (["\\frac59", "\\frac 59", "\\frac{5}9", "\\frac5{9}"], "5/9"),
        (["137 \\frac{1}{2}", "137\\frac12", "137.5", "137½", "137 1/2", "137 and 1/2"], "137.5"),
        (["10,\\!080", "10,080", "10{,}080", "10\\,080", "10 080", "10080"], "10080"),
        (["276 000", "276\\,000", "276{,}000"], "276000"),
        (["1{,}5", "1.5"], "1.5"),
        (["0{,}125", "\\frac18"], "0.125"),
        (["\\frac{12}{5,525}", "\\dfrac{12}{5525}", "12/5,525"], "12/5525"),
        (["109.00000000000001", "109"], "109"),
        (["\\$32,\\!348", "32348", "\\$32{,}348.00"], "32348"),
        (["90^\\circ", "90^{\\circ}", "90°", "90 degrees", "90\\text{ degrees}", "90"], "90"),
        (
            [
                "864 \\mbox{ inches}^2",
                "864\\text{ in}^2",
                "864 inches^2",
                "864\\,\\mathrm{in}^{2}",
                "864 square inches",
            ],
            "864",
        ),
        (["5\\%", "5 \\%", "5%"], "5"),
        (["3\\times10^5", "3 \\times 10^{5}", "300000"], "300000"),
        (["x=5", "x = 5", "5", "5.", "\\(x=5\\)", "\\[ x = 5 \\]"], "5"),
        (["y = 2x+3", "2x + 3", "f(x)=2x+3"], "2x+3"),
        (["x \\in [-2,7]", "[-2, 7]", "\\left[-2,7\\right]"], "[-2,7]"),
        (["11\\sqrt2", "11 \\sqrt{2}", "11√2", "11sqrt(2)", "11\\sqrt(2)"], "11\\sqrt{2}"),
        (["\\sqrt[3]{2}", "\\sqrt[3] 2"], "\\sqrt[3]{2}"),
        (["x^2", "x^{2}", "x²"], "x^2"),
        (["x^{10}", "x^10"], "x^{10}"),
        (["2^{-3}", "2^-3"], "2^{-3}"),
        (["4210_{5}", "4210_5"], "4210_5"),
        (["\\left( 3, \\frac{\\pi}{2} \\right)", "(3,\\frac\\pi2)", "( 3 , \\dfrac{π}{2} )"],
        "(3,\\frac{\\pi}{2})"),
        (["(-\\infty, 2) \\cup (3, \\infty)", "(-∞,2)∪(3,∞)"], "(-\\infty,2)\\cup(3,\\infty)"),
        (["\\{1, 2\\}", "\\left\\{1,2\\right\\}", "\\lbrace 1,2 \\rbrace"], "\\{1,2\\}"),
        (["1,2", "x=1, x=2", "1 \\text{ and } 2", "x = 1 \\text{ or } x = 2"], "1,2"),
        (["3\\pi", "The answer is $3\\pi$.", "So it is \\boxed{3\\pi}, about 9.42"], "3\\pi"),
        (["x \\leq 5", "x \\le 5", "x ≤ 5"], "x\\le5"),
        (["3x", "3*x", "3 \\cdot x"], "3x"),
        (["\\cot x", "\\cot{x}", "cot x"], "\\cot x"),
        (["x^\\frac12", "x^{\\frac{1}{2}}", "x^{1/2}"], "x^{\\frac{1}{2}}"),
        (
            [
                "\\begin{pmatrix} 1/5 \\\\ -2 \\end{pmatrix}",
                "\\begin{bmatrix}\\frac15\\\\-2\\\\\\end{bmatrix}",
                "\\begin{pmatrix}1/5\\-2\\end{pmatrix}",
            ],
            "\\begin{pmatrix}\\frac{1}{5}\\\\-2\\end{pmatrix}",
        ),
        (["\\text{Evelyn}", "Evelyn", "\\textbf{evelyn}", "\\mbox{ Evelyn }"], "evelyn"),
        (["\\text{(C)}", "(C)", "C", "\\textbf{(C)}"], "C"),
    ],
)  # fmt: skip
def test_spellings_of_one_answer_have_one_key(spellings, key):
    assert {spelling: canonical("latex", spelling) for spelling in spellings} == dict.fromkeys(
        spellings, key
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("2\\frac{3}{2}", "3.5"),  # a product, or a sloppy mixed number
        ("2\\cdot\\frac12", "2.5"),
        ("2\\frac{-1}{3}", "2-\\frac{1}{3}"),
        ("1 2", "12"),
        ("(1,234)", "1234"),
        ("0.333", "1/3"),
        ("52_8", "52"),
        ("x", "y"),
        ("(2,3)", "[2,3]"),
        ("ab", "AB"),
        ("x=1,y=2", "2"),
        ("1,5", "1.5"),
        ("5x-7y=0", "0"),
    ],
)
def test_different_answers_keep_different_keys(one, other):
    assert canonical("latex", one) != canonical("latex", other)


@pytest.mark.parametrize("raw", ["", " ", "$$", "\\boxed{}", "...", "{}", "x" * (LONGEST + 1)])
def test_nothing_or_too_much_is_no_answer(raw):
    assert canonical("latex", raw) is None


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        (
            "Hence \\[ \\boxed{\\frac{\\sqrt{3}}{2}}. \\] This is about $0.87$.",
            "\\frac{\\sqrt{3}}{2}",
        ),
        ("The final answer is $\\boxed{(2,3)}$. I hope it is correct.", "(2,3)"),
        ("The answer is $x = 5$, as $x > 0$.", "x = 5"),
        ("Therefore the answer is\n\\[\n\\frac12\n\\]", "\\frac12"),
        ("The answer is 42.", "42"),
        ("Answer: (3, \\pi/2)", "(3, \\pi/2)"),
        ("So $a = b = 7$.", "7"),
        ("The answer is $2$ and $3$, not $4$.", "2, 3"),
        ("Therefore $x=2$ or $x=3$.", "x=2, x=3"),
        ("With $y=1$ we get $x=2$.", "x=2"),
        ("Thus \\(y = 2x+3\\) it is.", "y = 2x+3"),
        ("It is 7, then 8.", "8"),
        ("An unfinished \\boxed{5", "5"),
        ("nothing here", None),
        ("The answer is not $5$ but $6$.", "6"),
        ('{"steps": "$x = 3$", "answer": "\\\\frac{1}{2}"}', "\\frac{1}{2}"),
        ('{"answer": "\\frac{1}{2}"}', "\\frac{1}{2}"),
        ("So $x = 5$.\nAnswers:", "x = 5"),
    ],
)
def test_the_mathematics_of_a_cot(text, raw):
    assert extract("latex", text) == raw


@pytest.mark.parametrize(
    ("key", "gold", "worth_asking"),
    [
        ("2(k+1)", "2k+2", True),
        ("6^3", "216", True),
        ("0.333333", "1/3", False),
        ("seat", "east", False),
        ("c", "C", False),
        ("52_9", "52_8", False),
        ("x" * 301, "y", False),
    ],
)
def test_algebra_is_asked_only_where_it_could_know_better(key, gold, worth_asking):
    assert comparable(key, gold) == worth_asking
