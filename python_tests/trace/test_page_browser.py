"""The page in a real browser: it loads from disk, reacts, and shows the numbers of the trace."""

from __future__ import annotations

import math
import re

import pytest
import torch
from browser import Browser, missing
from torch import nn

import rotcell
from rotcell import RotGRU, RotLSTM
from rotcell.tracing import Reading, save_side_by_side

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

STEPS, PAIRS = 9, 4
TOKENS = [f"word{k}" if k != 4 else "." for k in range(STEPS)]
ANSWERS = ["yes", "no", "perhaps"]


@pytest.fixture(scope="module")
def browser():
    with Browser() as running:
        yield running


@pytest.fixture(scope="module")
def trace():
    torch.manual_seed(3)
    layer = RotLSTM(3, 2 * PAIRS, bidirectional=True)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.mul_(4)
    return rotcell.trace(layer, torch.randn(STEPS, 2, 3))


@pytest.fixture(scope="module")
def reading():
    chances = torch.softmax(torch.randn(STEPS, 3, generator=torch.Generator().manual_seed(1)), -1)
    saliency = torch.linspace(0, 1, STEPS).roll(3)
    return Reading(ANSWERS, chances, saliency, ["why", "?"], torch.tensor([0.5, 1.0]), "no")


@pytest.fixture
def page(browser, trace, reading, tmp_path):
    browser.resize(1280, 900)
    browser.use_colors("light")
    path = trace.save(
        tmp_path / "t.html", [TOKENS, TOKENS], [0, 1], readings=[reading, reading], title="A test"
    )
    browser.open(path)
    browser.requests()
    browser.press("home")
    return browser


def shown(browser, name):
    """The numbers in the table under the plane."""
    return browser.run(
        "return [...document.querySelectorAll(`#numbers [data-name=${arguments[0]}]`)]"
        ".map(e => parseFloat(e.textContent))",
        name,
    )


def chosen_pair(browser):
    return int(re.match(r"Pair (\d+)", browser.text("#plane-title"))[1])


def assert_shows(browser, direction, row, step):
    pair = chosen_pair(browser)
    assert shown(browser, "angles") == [
        pytest.approx(float(direction.row("angles", row)[step, pair]), abs=5.1e-5)
    ]
    for name in (*"ifgo", "before_rotation", "after_rotation", "output"):
        units = direction.row(name, row)[step, 2 * pair : 2 * pair + 2].tolist()
        assert shown(browser, name) == pytest.approx(units, abs=5.1e-5), name
    previous = direction.row("previous_state", row)[step, 2 * pair : 2 * pair + 2].tolist()
    assert shown(browser, "previous") == pytest.approx(previous, abs=5.1e-5)


def cell_at(browser, row, step):
    """Where a cell of the heat map is in the window."""
    return browser.run(
        "const m = document.getElementById('map'), b = m.getBoundingClientRect(), d = m.dataset;"
        "return [b.left + Number(d.left) + (arguments[1] + 0.5) * d.column,"
        "        b.top + Number(d.top) + (arguments[0] + 0.5) * d.row]",
        row,
        step,
    )


def test_loads_from_disk_without_a_request_or_a_complaint(browser, trace, tmp_path):
    browser.requests()
    browser.console()
    path = trace.save(tmp_path / "t.html", [TOKENS, TOKENS], [0, 1])
    browser.open(path)
    asked = [url for url in browser.requests() if not url.startswith("chrome://")]
    assert asked == [path.resolve().as_uri()]
    assert browser.console() == []
    assert browser.text("#title") == "Inside the RotLSTM"


def test_keys_step_through_tokens_and_pairs(page, trace):
    for step in range(3):
        assert page.run("return document.querySelector('.word.now').id") == f"token-{step}"
        assert_shows(page, trace[0], 0, step)
        page.press("right")
    page.press("end")
    assert_shows(page, trace[0], 0, STEPS - 1)
    page.press("left")
    assert_shows(page, trace[0], 0, STEPS - 2)
    while chosen_pair(page) > 0:
        page.press("up")
    page.press("up")
    assert chosen_pair(page) == 0
    page.press("down")
    assert chosen_pair(page) == 1
    assert_shows(page, trace[0], 0, STEPS - 2)
    spoken = page.run("return document.getElementById('spoken').textContent")
    assert f"Token {STEPS - 1} of {STEPS}" in spoken
    assert page.console() == []


def test_the_slider_and_a_click_on_a_word_choose_the_token(page, trace):
    page.choose("#slider", "5")
    assert_shows(page, trace[0], 0, 5)
    page.click("#token-2")
    assert_shows(page, trace[0], 0, 2)
    assert page.run("return document.getElementById('slider').value") == "2"


def test_hovering_shows_the_value(page, trace):
    page.choose("#quantity", "angles")
    for row, step in ((0, 0), (3, 8), (2, 4)):
        page.point(*cell_at(page, row, step))
        tip = page.text("#tip")
        assert TOKENS[step] in tip
        assert f"pair {row}" in tip
        angle = float(trace[0].row("angles", 0)[step, row])
        assert f"{angle:.4f} rad" in tip
    page.choose("#quantity", "deviation")
    page.point(*cell_at(page, 2, 4))
    angles = trace[0].row("angles", 0)[:, 2].double()
    mean = torch.polar(torch.ones_like(angles), angles).mean().angle()
    apart = math.degrees(math.remainder(float(angles[4] - mean), 2 * math.pi))
    assert f"{apart:+.1f}°".replace("-", "−") in page.text("#tip")  # noqa: RUF001
    page.choose("#quantity", "f")
    page.point(*cell_at(page, 5, 7))
    assert "unit 5" in page.text("#tip")
    assert f"{float(trace[0].row('f', 0)[7, 5]):.4f}" in page.text("#tip")
    page.point(2, 2)
    assert page.run("return document.getElementById('tip').hidden")


def test_clicking_a_cell_chooses_token_and_pair(page, trace):
    page.point(*cell_at(page, 3, 6), click=True)
    assert chosen_pair(page) == 3
    assert_shows(page, trace[0], 0, 6)


def test_every_quantity_can_be_shown(page):
    names = page.run("return [...document.getElementById('quantity').options].map(o => o.value)")
    assert names == ["angles", "deviation", *"ifgo", "before_rotation", "after_rotation", "output"]
    pictures = set()
    for name in names:
        page.choose("#quantity", name)
        pictures.add(page.run("return document.getElementById('map').toDataURL()"))
    # The state after the turn and its output differ from all others, as do the gates.
    assert len(pictures) == len(names)
    assert page.console() == []


def test_pairs_can_be_ordered_by_how_much_they_turn(page, trace):
    page.choose("#order", "turn")
    turns = {
        k: (math.pi - (trace[0].row("angles", 0)[:, k] - math.pi).abs()).mean()
        for k in range(PAIRS)
    }
    expected = sorted(turns, key=turns.get, reverse=True)
    found = []
    for row in range(PAIRS):
        page.point(*cell_at(page, row, 0))
        found.append(int(re.search(r"pair (\d+)", page.text("#tip"))[1]))
    assert found == expected


def test_finds_tokens_with_a_similar_rotation_of_a_pair(page, trace):
    page.choose("#within", "40")
    page.press("f")
    pair = chosen_pair(page)
    wanted = trace[0].row("angles", 0)[0, pair]
    apart = [
        ((trace[0].row("angles", row)[:, pair] - wanted + math.pi) % (2 * math.pi) - math.pi).abs()
        for row in (0, 1)
    ]
    expected = [(a <= math.radians(40)).nonzero()[:, 0].tolist() for a in apart]
    expected[0].remove(0)
    marked = page.run(
        "return [...document.querySelectorAll('.word.alike')].map(e => Number(e.id.slice(6)))"
    )
    assert marked == expected[0]
    count = page.run("return document.querySelectorAll('#alike-list button').length")
    assert count == len(expected[0]) + len(expected[1])
    assert count > 0
    page.click("#alike-list button")
    now = int(page.run("return document.querySelector('.word.now').id.slice(6)"))
    row = int(page.run("return document.getElementById('sequence').value"))
    assert now in expected[row]


def test_plays_and_pauses(page):
    page.choose("#speed", "500")
    page.press("space")
    page.wait("document.querySelector('.word.now').id === 'token-2'")
    assert page.run("return document.getElementById('play').getAttribute('aria-label')") == "Pause"
    page.press("space")
    stopped = page.run("return document.querySelector('.word.now').id")
    dot = page.run("return document.getElementById('dot').getAttribute('cx')")
    page.wait("new Promise(done => setTimeout(() => done(true), 1200))")
    assert page.run("return document.querySelector('.word.now').id") == stopped
    assert page.run("return document.getElementById('dot').getAttribute('cx')") == dot


def test_the_plane_ends_where_the_state_is(page, trace):
    page.choose("#slider", "6")
    pair = chosen_pair(page)
    x, y = (
        float(page.run(f"return document.getElementById('dot').getAttribute('c{axis}')"))
        for axis in "xy"
    )
    state = trace[0].row("state", 0)[6, 2 * pair : 2 * pair + 2]
    assert math.atan2(200 - y, x - 200) == pytest.approx(math.atan2(state[1], state[0]), abs=0.05)
    # The arc starts where the state before the turn is and has its length.
    arc = page.run("return document.querySelector('#plane .turn').getAttribute('d')")
    start = [float(n) for n in re.match(r"M([\d.]+) ([\d.]+)A", arc).groups()]
    before = trace[0].row("before_rotation", 0)[6, 2 * pair : 2 * pair + 2]
    scale = math.hypot(x - 200, 200 - y) / float(state.norm())
    assert (start[0] - 200) / scale == pytest.approx(float(before[0]), abs=0.01)
    assert (200 - start[1]) / scale == pytest.approx(float(before[1]), abs=0.01)


@pytest.mark.parametrize("step", range(1, STEPS))
def test_arcs_follow_the_direction_of_the_rotation(page, trace, step):
    page.choose("#slider", str(step))
    pair = chosen_pair(page)
    x, y = page.run(
        "const arc = document.querySelector('#plane .turn');"
        "const p = arc.getPointAtLength(arc.getTotalLength() / 2); return [p.x, p.y]"
    )
    before = trace[0].row("before_rotation", 0)[step, 2 * pair : 2 * pair + 2]
    angle = float(trace[0].row("angles", 0)[step, pair])
    half_way = math.atan2(*before.flip(0)) + math.remainder(angle, 2 * math.pi) / 2
    assert math.remainder(math.atan2(200 - y, x - 200) - half_way, 2 * math.pi) == pytest.approx(
        0, abs=0.02
    )


def test_answers_and_salient_words(page, reading):
    page.choose("#slider", "4")
    best = int(reading.probabilities[4].argmax())
    chance = round(100 * float(reading.probabilities[4, best]))
    assert page.text("#so-far").endswith(f"{ANSWERS[best]} ({chance} %)")
    strongest = page.run(
        "const shade = e => Number((e.style.background.match(/[\\d.]+(?=\\))/) || [0])[0]);"
        "const words = [...document.querySelectorAll('#story .word')];"
        "return words.map(shade)"
    )
    assert strongest.index(max(strongest)) == int(reading.saliency.argmax())
    assert "no" in page.text("#asked")
    assert "why" in page.text("#asked")


def test_the_reverse_direction_comes_from_the_right(page, trace):
    page.choose("#direction", "1")
    page.choose("#slider", "3")
    assert_shows(page, trace[1], 0, 3)
    page.click("#forth")
    assert_shows(page, trace[1], 0, 2)


def test_choosing_another_sequence_shows_its_numbers(page, trace):
    page.choose("#sequence", "1")
    page.choose("#slider", "3")
    assert_shows(page, trace[0], 1, 3)


def test_light_and_dark(page):
    ground = "return getComputedStyle(document.body).backgroundColor"
    light = page.run(ground)
    page.click("#theme")
    dark = page.run(ground)
    assert light != dark
    # The theme is dark already, so wait for the event: a change taken back at once makes none.
    page.run(
        "matchMedia('(prefers-color-scheme: dark)').addEventListener("
        "'change', e => { window.prefersDark = e.matches; });"
    )
    page.use_colors("dark")
    page.wait("window.prefersDark === true")
    assert page.run("return document.documentElement.dataset.theme") == "dark"
    page.use_colors("light")
    page.wait("document.documentElement.dataset.theme === 'light'")
    assert page.run(ground) == light


def test_everything_can_be_reached_and_has_a_name(page):
    nameless = page.run(
        "return [...document.querySelectorAll('button, select, input, canvas')].filter(e =>"
        " !(e.getAttribute('aria-label') || e.textContent.trim() && e.matches('button')"
        " || e.closest('label'))).map(e => e.outerHTML)"
    )
    assert nameless == []
    hidden_from_keys = page.run(
        "return [...document.querySelectorAll('button, select, input, canvas')]"
        ".filter(e => e.tabIndex < 0).length"
    )
    assert hidden_from_keys == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_contrasts_with_its_background(page, scheme):
    page.use_colors(scheme)
    page.wait(f"document.documentElement.dataset.theme === '{scheme}'")
    ratios = page.run(
        """
        const style = getComputedStyle(document.documentElement);
        const light = name => {
          const hex = style.getPropertyValue(name).trim();
          const [r, g, b] = [1, 3, 5].map(k => parseInt(hex.slice(k, k + 2), 16) / 255)
            .map(x => x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
          return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        return ['--ink', '--soft', '--accent', '--found', '--forget', '--write']
          .map(name => ratio(light(name), light('--card')));
        """
    )
    assert min(ratios) >= 4.5  # of the accessibility guidelines, for small text


@pytest.mark.parametrize("width", [1440, 800, 360])
def test_fits_the_window(page, width):
    page.resize(width, 800)
    page.wait("true")
    assert page.run("return document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("layer", [RotGRU(3, 5), nn.LSTM(3, 5), RotLSTM(3, 6, proj_size=2)])
def test_every_kind_of_layer_has_a_page(browser, layer, tmp_path):
    trace = rotcell.trace(layer, torch.randn(6, 1, 3))
    browser.console()
    browser.open(trace.save(tmp_path / "t.html"))
    browser.press("home", "right", "down")
    for name in browser.run(
        "return [...document.getElementById('quantity').options].map(o => o.value)"
    ):
        browser.choose("#quantity", name)
    assert browser.console() == []
    if isinstance(layer, nn.LSTM):
        assert browser.run("return document.querySelector('#numbers [data-name=angles]')") is None
    else:
        assert shown(browser, "angles") == [
            pytest.approx(float(trace[0].row("angles", 0)[1, chosen_pair(browser)]), abs=5.1e-5)
        ]


def test_a_long_sequence_scrolls_along(browser, tmp_path):
    browser.resize(900, 800)
    trace = rotcell.trace(RotLSTM(3, 4), torch.randn(600, 1, 3))
    browser.open(trace.save(tmp_path / "t.html"))
    browser.press("home")
    assert browser.run("return document.getElementById('scroller').scrollLeft") == 0
    browser.press("end")
    assert browser.run("return document.getElementById('scroller').scrollLeft") > 1000
    assert browser.run("return document.documentElement.scrollWidth") <= 900


def test_the_page_opens_on_the_difference_from_the_mean_angle(page):
    assert page.run("return document.getElementById('quantity').value") == "deviation"
    assert not page.run("return document.getElementById('alternating').hidden")


def test_the_heat_map_is_saved_as_numbers_and_as_a_picture(page, trace):
    page.choose("#quantity", "angles")
    page.run("URL.createObjectURL = (blob) => { window.saved = blob; return '#'; };")
    save = "document.getElementById('save-{}').click(); return window.saved.text();"
    head, *lines = page.run(save.format("csv")).strip().split("\n")
    assert head == "step,token,pair 0,pair 1,pair 2,pair 3"
    assert [line.split(",")[1] for line in lines] == TOKENS
    numbers = torch.tensor([[float(x) for x in line.split(",")[2:]] for line in lines])
    torch.testing.assert_close(numbers, trace[0].row("angles", 0))
    picture = page.run(save.format("svg"))
    assert picture.startswith("<svg xmlns")
    assert picture.count("<rect x=") == STEPS * PAIRS


def test_padding_is_named(browser, trace, tmp_path):
    browser.open(trace.save(tmp_path / "p.html", ["", "", *TOKENS[2:]], 0))
    assert browser.run("return document.getElementById('token-1').textContent") == "(pad)"
    assert browser.run("return document.querySelectorAll('.word.padding').length") == 2


def test_two_pages_side_by_side_show_the_same_token(browser, trace, tmp_path):
    pages = [trace.html(TOKENS, 0, title=title) for title in ("one", "two")]
    browser.open(save_side_by_side(tmp_path / "both.html", pages))
    now = "[...document.querySelectorAll('iframe')].map((f) => {}.id).join()"
    now = now.replace("{}", "f.contentDocument?.querySelector('.word.now')?")
    browser.wait(f"{now} === 'token-8,token-8'")
    for frame, token in ((0, 2), (1, 5)):
        browser.run(
            "const frames = document.querySelectorAll('iframe');"
            "frames[arguments[0]].contentDocument.getElementById(arguments[1]).click();",
            frame,
            f"token-{token}",
        )
        browser.wait(f"{now} === 'token-{token},token-{token}'")


@pytest.mark.parametrize("cell", [RotLSTM, RotGRU])
def test_planes_of_larger_groups(browser, tmp_path, cell):
    torch.manual_seed(5)
    layer = cell(3, 9, rotation_size=4)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.mul_(4)
    direction = rotcell.trace(layer, torch.randn(STEPS, 1, 3))[0]
    trace = rotcell.trace(layer, torch.randn(STEPS, 1, 3))
    direction = trace[0]
    browser.console()
    browser.open(trace.save(tmp_path / "t.html", TOKENS))
    assert "8 units" not in browser.text("#about")
    assert "9 units in 2 groups of 4" in browser.text("#about")
    browser.press("end")
    step = STEPS - 1
    seen = set()
    for _ in direction.planes:
        browser.press("up")
    for number, plane in enumerate(direction.planes):
        browser.choose("#quantity", "angles")
        browser.point(*cell_at(browser, number, step), click=True)
        label = f"Group {plane.group}, layer {plane.layer}: units {plane.units[0]} and"
        title = browser.text("#plane-title")
        assert title == f"{label} {plane.units[1]}"
        seen.add(title)
        units = f"({plane.units[0]}, {plane.units[1]})"
        assert f"group {plane.group}, layer {plane.layer} {units}" in browser.text("#tip")
        angle = float(direction.row("angles", 0)[step, number])
        assert shown(browser, "angles") == [pytest.approx(angle, abs=5.1e-5)]
        # Turning all planes one after the other is the rotation that the kernels computed.
        state = direction.row("before_rotation", 0)[step].double().clone()
        for before, u in list(zip(direction.planes, direction.row("angles", 0)[step], strict=True)):
            if before == plane:
                break
            a, b = (state[unit].clone() for unit in before.units)
            state[before.units[0]] = u.cos() * a - u.sin() * b
            state[before.units[1]] = u.sin() * a + u.cos() * b
        a, b = (float(state[unit]) for unit in plane.units)
        assert shown(browser, "start") == pytest.approx([a, b], abs=5.1e-5)
        turned = [
            math.cos(angle) * a - math.sin(angle) * b,
            math.sin(angle) * a + math.cos(angle) * b,
        ]
        assert shown(browser, "end") == pytest.approx(turned, abs=5.1e-5)
    assert len(seen) == 12
    last = direction.planes[-1].units
    after = direction.row("after_rotation", 0)[step, list(last)].tolist()
    assert shown(browser, "after_rotation") == pytest.approx(after, abs=5.1e-5)
    browser.choose("#quantity", "f" if cell is RotLSTM else "r")
    browser.point(*cell_at(browser, 8, step), click=True)  # the unit that is in no group
    assert "unit 8" in browser.text("#tip")
    assert browser.console() == []
