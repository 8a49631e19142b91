"""Plans of sweeps: what may be written, what a plan becomes, and what is said of faults."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import msgspec
import pytest
import yaml

from llama_load.ground.bundled import bundled
from llama_load.ground.errors import UsageError
from llama_load.lab.sweep.cells import Cell, expand
from llama_load.lab.sweep.located import Faults, parse_yaml
from llama_load.lab.sweep.read_plan import plan_of, read_plan
from llama_load.lab.sweep.server_spec import spec_of
from llama_load.lab.sweep.short_form import plan_document
from llama_load.lab.sweep.time_needed import needed_s, needed_text, planned_s, time_s
from scripts.make_docs import plan_schema
from tests.conftest import REPOSITORY

SHORT = """\
servers:
  qwen:
    llama-server: {model: qwen3-4b-q4_k_m.gguf, args: "-c 16384 -np 4 -fa on"}
vary:
  quant: {qwen.model: [qwen3-4b-q4_k_m.gguf, qwen3-4b-q8_0.gguf]}
  threads: {qwen.args+: ["-t 4", "-t 8"]}
load: [{stages: "1,8,16", num-prompts: 64}]
workload: sharegpt_chat
repeats: 3
"""
PLANS = sorted(bundled("plans").glob("*.yaml"))


def cells_of(text: str, **sets: str) -> list[Cell]:
    faults = Faults("plan")
    return expand(plan_of(parse_yaml(text, "plan", faults), sets, faults))


def faults_of(text: str) -> str:
    with pytest.raises(UsageError) as raised:
        cells_of(text)
    return str(raised.value)


def test_a_plan_is_the_cross_product_of_its_settings_once_per_repeat() -> None:
    cells = cells_of(SHORT)
    assert len(cells) == 2 * 2 * 3
    assert [cell.repeat for cell in cells] == [1] * 4 + [2] * 4 + [3] * 4  # interleaved
    assert cells[1].server.settings["args"] == ["-c 16384 -np 4 -fa on", "-t 8"]
    assert cells[2].settings == {"quant": "qwen3-4b-q8_0.gguf", "threads": "-t 4"}
    assert cells[2].server.settings["model"] == "qwen3-4b-q8_0.gguf"
    assert (
        len({cell.key for cell in cells}) == len({cell.folder for cell in cells}) == 12
    )
    # all cells of a repeat send the same prompts
    assert [cell.flags["seed"] for cell in cells[::4]] == [[0], [1], [2]]


def test_an_order_is_by_seed_and_repeats_stay_blocks() -> None:
    shuffled = [
        cells_of(SHORT + f"order: shuffled\nseed: {seed}") for seed in (1, 1, 2)
    ]
    titles = [[cell.title for cell in cells] for cells in shuffled]
    assert titles[0] == titles[1] != titles[2]
    assert [cell.repeat for cell in shuffled[0]] == [1] * 4 + [2] * 4 + [3] * 4
    assert [cell.repeat for cell in cells_of(SHORT + "order: as-written")] == [
        1,
        2,
        3,
    ] * 4


def test_every_second_repeat_runs_backwards() -> None:
    """A B C D D C B A A B C D: no cell is always the one behind another."""
    titles = [cell.title for cell in cells_of(SHORT)]
    assert titles[4:8] == titles[3::-1] and titles[8:] == titles[:4]


def test_settings_of_one_server_do_not_multiply_another() -> None:
    text = SHORT.replace(
        "servers:\n", "servers:\n  other: {url: http://127.0.0.1:1}\n"
    ).replace("repeats: 3", "")
    assert [cell.settings for cell in cells_of(text)].count({}) == 1
    assert len(cells_of(text)) == 1 + 4


def test_placeholders_are_filled_in_arguments_environment_and_flags() -> None:
    (_, cell) = cells_of("""
servers: {a: {llama-server: {model: m.gguf, args: "-t {t} -ot x{2}={{y}}", env: {OMP: "{t}"}}}}
vary: {t: {values: [1, 2], labels: [one, two]}}
load: {u: "{t}", num-prompts: 4}
""")
    assert cell.settings == {"t": "two"}
    assert cell.server.settings["args"] == ["-t 2 -ot x{2}={{y}}"]  # other braces stay
    assert cell.server.settings["env"] == {"OMP": "2"}
    assert cell.flags["u"] == ["2"]


@pytest.mark.parametrize("server", ["llama-server: {model: m.gguf}", "url: 'http://h'"])
def test_tests_become_exact_loads_with_a_workload_of_their_own(server: str) -> None:
    cells = cells_of(f"""
servers: {{a: {{{server}}}}}
workload: [sharegpt_chat, vision]
load: [{{tests: [pp512, tg128], depth: [0, 4096], num-prompts: 3}}]
""")
    assert [cell.load.label for cell in cells] == [
        "pp512",
        "tg128",
        "pp512 @ d4096",
        "tg128 @ d4096",
    ]
    assert {Path(cell.workload.file).stem for cell in cells} == {"synthetic"}
    flags = [{name: values[0] for name, values in cell.flags.items()} for cell in cells]
    assert (
        flags[0]["input-len"],
        flags[0]["output-len"],
        flags[0]["cache-prompt"],
    ) == (512, 1, "off")
    # 129 tokens are 128 decoding steps
    assert (flags[1]["output-len"], flags[1]["num-prompts"]) == (129, 3)
    # the depth is what the cache holds
    assert (flags[2]["prefix-len"], "cache-prompt" in flags[2]) == (4096, False)
    assert flags[3]["input-len"] == 4096


def test_all_faults_are_reported_at_once_with_their_lines() -> None:
    said = faults_of("""\
servers:
  qwen:
    llama-server: {modle: a.gguf}
  b: {url: ftp://x}
vary:
  quant: {qwen.model: [a, b], labels: [x]}
  threads: {foo.args+: ["-t 4", "-t 8"]}
load: [{stages: "1,8", num-promts: 64}, {tests: [pq3]}]
workload: sharegpt_chatt
repeats: 0
repeats: three
tables: [{columns: [modle]}]
""")
    lines = [line.split(":")[0].strip() for line in said.splitlines()[1:]]
    assert lines == sorted(lines, key=lambda line: int(line.removeprefix("line ")))
    for expected in (
        "line 3: servers.qwen.llama-server.modle: there is no such key; did you mean model?",
        "line 4: servers.b.url must begin with http:// or https://",
        "line 6: vary.quant: all its lists need the same length",
        "line 7: vary.threads: foo.args+ changes nothing",
        "line 8: load[2]: tests are ppN (prompt processing) and tgN (token generation), got pq3",
        "line 9: workload: there is no locustfile sharegpt_chatt",
        "line 11: repeats is given twice, first in line 10",
        "line 11: repeats must be a whole number from 1 to 1000, got 'three'",
        "line 12: tables[1]: there is no value modle; did you mean model?",
    ):
        assert expected in said


@pytest.mark.parametrize("target", ["flags", "flags.a.b", "env", "a.env", "a"])
def test_a_target_without_a_name_is_a_fault_and_no_traceback(target: str) -> None:
    said = faults_of(f"""\
servers:
  a: {{llama-server: {{model: m.gguf}}}}
vary:
  x: {{{target}: [1, 2]}}
load: {{users: 1}}
""")
    assert f"line 4: vary.x: {target} changes nothing" in said


RUNS_ON = """\
servers:
  a: {{vllm: {{args: "-t {{t}}"}}}}
  b: {{llama-server: {{model: m.gguf}}}}
vary:
  quant: {{a.model: {a}, a.url: {a_urls}, b.model: {b}, b.url: {b_urls}, labels: [x, y]}}
  t: {{a.args+: ["-x 1", "-x 2"], labels: ["1", "2"]}}
load: {{u: 1}}
"""


@pytest.mark.parametrize(
    ("a", "a_urls", "b", "b_urls", "expected"),
    [
        ("m", '""', "[m, n]", '""', ["a x 1", "a x 2", "a y 1", "a y 2", "b x", "b y"]),
        ('""', '""', "[m, n]", '""', ["b x", "b y"]),  # one side alone
        ('[m, ""]', '""', '""', '""', ["a x 1", "a x 2"]),
        # A server that runs is not started twice to vary how it is started.
        (
            "m",
            "['http://h', '']",
            '""',
            "['', 'http://g']",
            ["a x http://h", "a y 1", "a y 2", "b y http://g"],
        ),
    ],
)
def test_a_side_that_runs_already_or_is_left_out(
    a: str, a_urls: str, b: str, b_urls: str, expected: list[str]
) -> None:
    cells = cells_of(RUNS_ON.format(a=a, a_urls=a_urls, b=b, b_urls=b_urls))
    found = [
        " ".join(
            [
                each.server.name,
                *each.settings.values(),
                *([each.server.settings["url"]] if each.server.kind == "url" else []),
            ]
        )
        for each in cells
    ]
    assert found == expected
    assert len({each.key for each in cells}) == len(cells)
    # they can be started
    assert all(spec_of(each.server) for each in cells if each.server.kind != "url")


@pytest.mark.parametrize(
    ("a_urls", "fault"),
    [
        (
            "http://h",
            "a.url has http://h for 2 values, but one server has one of them; give a list of URLs",
        ),
        ("[h, '']", "a.url must begin with http:// or https://, got h"),
        ("['http://[::1', '']", "a.url cannot be used: "),
        ("['http://h', '', '']", "all its lists need the same length, got 2 and 3"),
    ],
)
def test_urls_that_cannot_be_varied(a_urls: str, fault: str) -> None:
    assert fault in faults_of(
        RUNS_ON.format(a="[m, n]", a_urls=a_urls, b="[m, n]", b_urls='""')
    )


def test_a_plan_that_leaves_out_every_server_is_refused() -> None:
    with pytest.raises(UsageError, match="the plan has no cells"):
        cells_of(RUNS_ON.format(a='""', a_urls='""', b='""', b_urls='""'))


def test_flag_values_that_locust_would_refuse_are_faults_with_lines() -> None:
    said = faults_of("""\
servers: {a: {modle: x}}
vary:
  tokens:
    flags.max-tokens:
      - 8
      - "-3"
  n: {values: [1, many]}
flags: {temperature: hot}
workload: {file: sharegpt_chat, flags: {warmup: -1}}
load:
  - u: x
    num-prompts: "{n}"
  - {stages: "1,x", t: soon, connection-reuse: off}
  - {u: 2,
     request-rate: fast, r: 1, ignore-eos: "yes"}
""")
    for expected in (
        "line 1: servers.a.modle: there is no such key",
        "line 6: vary.tokens.flags.max-tokens: --max-tokens must be a whole number of at least 1, got '-3'",
        "line 8: flags.temperature: --temperature must be a number of at least 0, got 'hot'",
        "line 9: workload.flags.warmup: --warmup must be a whole number of at least 0, got '-1'",
        "line 11: load[1].u: -u must be a whole number of at least 1, got 'x'",
        "line 12: load[1].num-prompts: --num-prompts must be a whole number of at least 1, got 'many'",
        "line 13: load[2].t: -t must be a time such as 90s, 10m or 1h30m, got 'soon'",
        "line 13: load[2].connection-reuse: needs a value; YAML reads on, off",
        "line 13: load[2].stages: --stages ",
        "line 15: load[3].request-rate: --request-rate must be a number above 0, got 'fast'",
        "line 15: load[3].ignore-eos: must be true or false, got 'yes'",
    ):
        assert expected in said
    assert said.startswith("plan has 12 faults")  # and a names no kind of server


def test_a_fault_of_the_combination_names_a_flag_of_it() -> None:
    text = "servers: {a: {url: 'http://x'}}\nload:\n  - {u: 1}\n  - {stages: '1,8'%s}"
    assert "line 4: load[2].u: -u 4 and --stages 1,8 both set concurrency" in faults_of(
        text % ", u: 4"
    )
    assert (
        "line 5: load[3].u: -u must be a whole number of at least 1 and at most"
        in faults_of(text % "}\n  - {u: 0")
    )
    assert cells_of(
        text % ", t: 1m, num-prompts: ''"
    )  # a value of `set` that was left empty
    assert cells_of(
        "servers: {a: {url: 'http://x'}}\nload: {request-rate: '{r}', speed: 1}\nvary: {r: {values: [1, inf]}}"
    )


def test_a_name_in_braces_that_no_setting_has_is_a_fault() -> None:
    said = faults_of("""\
servers:
  a: {llama-server: {model: m, args: ["-t {t}", "-c {nope}"],
      env: {X: "{no}"}}}
vary:
  t: {values: [1, 2]}
  q: {a.args+: ["-x {none}"]}
load:
  - {u: "{users}", system-prompt: "{any}", header: "X-User: {user}"}
""")
    for expected in (
        "line 2: servers.a.llama-server.args: no setting of vary is named nope; settings are t, q",
        "line 3: servers.a.llama-server.env: no setting of vary is named no;",
        "line 6: vary.q.a.args+: no setting of vary is named none;",
        "line 8: load[1].u: no setting of vary is named users;",
    ):
        assert expected in said
    assert said.startswith("plan has 4 faults")


def test_flags_of_a_locustfile_of_ones_own_pass(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text('parser.add_argument("--shop-url")', encoding="utf-8")
    text = f"servers: {{a: {{url: 'http://x'}}}}\nworkload: {own}\nload: {{u: 1, %s: 'any'}}"
    assert cells_of(text % "shop-url")[0].flags["shop-url"] == ["any"]
    assert "locust has no flag shop" in faults_of(text % "shop")
    assert plan_document(["http://x"], [], ["--shop-url", "any", "-f", str(own)], 1)[
        "load"
    ][0] == {"shop-url": ["any"]}


def test_values_of_the_short_form_are_checked() -> None:
    document = plan_document(
        ["http://x"], ["n=4,many"], ["-u", "{n}", "--max-tokens"], 1
    )
    said = faults_of(yaml.safe_dump(document))
    assert "load[1].u: -u must be a whole number of at least 1, got 'many'" in said
    assert "load[1].max-tokens: needs a value" in said


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "the plan must be keys"),
        (
            "servers: {a: {url: 'http://x'}}\nload: []",
            "line 2: load must be a list of at least 1 value, got an empty list",
        ),
        ("[1, 2]", "the plan must be keys"),
        ("a: [1", "not YAML"),
        ("\x00", "not YAML"),
        (
            "servers: !!python/object/apply:os.system [ls]\nload: {u: 1}",
            "servers must be names with values, got a list",
        ),
        (
            "servers: !!python/name:os.system x\nload: {u: 1}",
            "the tag !!python/name:os.system is not allowed",
        ),
        ("servers: {a: {}}\nload: {u: 1}", "give exactly one of url"),
        (
            "servers: {a: {url: 'http://x', vllm: {model: m}}}\nload: {u: 1}",
            "it has url and vllm",
        ),
        ("servers: {a: {vllm: {}}}\nload: {u: 1}", "model is missing"),
        (
            "servers: {a: {url: 'http://[::1'}}\nload: {u: 1}",
            "servers.a.url cannot be used: ",
        ),
        (
            'servers: {a: {embedded: {args: "-c \'1"}}}\nload: {u: 1}',
            "servers.a.embedded.args: the command",
        ),
        ("servers: {../a: {url: 'http://x'}}\nload: {u: 1}", "must be a plain name"),
        (
            "servers: {a: {url: 'http://x'}}\nload: {run-dir: x}",
            "run-dir is set by the sweep itself",
        ),
        (
            "servers: {a: {url: 'http://x'}}\nload: {api-key: x}",
            "set LLAMA_LOAD_API_KEY in the environment instead",
        ),
        (
            "servers: {a: {url: 'http://x'}}\nload: {u: '${users}'}",
            "${users} is not defined under set",
        ),
        (
            "servers: {a: {url: 'http://x'}}\nload: [{u: 1}, {u: 1}]",
            "two loads of a are labelled u=1",
        ),
        (
            "servers: {a: {url: 'http://x'}}\nload: {u: 1}\nvary: {server: {flags.u: [1]}}",
            "vary.server: server has a meaning of its own in tables; name the setting differently",
        ),
        ("[" * 500, "too deeply"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_with_what_to_write(
    text: str, expected: str
) -> None:
    assert expected in faults_of(text)


def test_aliases_cannot_blow_a_plan_up() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert "once its aliases are followed" in faults_of("\n".join(lines))


def test_too_many_cells_are_refused() -> None:
    text = SHORT
    vary = "".join(
        f"  v{n}: {{flags.num-prompts: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}}\n"
        for n in range(4)
    )
    assert "over 10000 cells" in faults_of(text.replace("vary:\n", "vary:\n" + vary))


def test_sets_replace_values_with_their_types() -> None:
    text = """
set: {users: 4, models: [a.gguf, b.gguf]}
servers: {a: {llama-server: {args: "-c ${users}000"}}}
vary: {model_file: {a.model: "${models}"}}
load: {u: "${users}"}
"""
    assert [cell.flags["u"] for cell in cells_of(text)] == [[4], [4]]
    cells = cells_of(text, users="2", models="[x.gguf]")
    assert (len(cells), cells[0].flags["u"], cells[0].server.settings["args"]) == (
        1,
        [2],
        ["-c 2000"],
    )


@pytest.mark.parametrize("plan", PLANS, ids=lambda path: path.stem)
def test_bundled_plans_are_good_and_fit_the_published_schema(plan: Path) -> None:
    """The schema describes plans whose ${names} are filled in, so those are replaced by what they
    stand for."""
    assert expand(read_plan(plan))
    document = yaml.safe_load(plan.read_text(encoding="utf-8"))

    def filled(value: object) -> object:
        if isinstance(value, dict):
            return {key: filled(each) for key, each in value.items()}
        if isinstance(value, list):
            return [filled(each) for each in value]
        is_name = (
            isinstance(value, str)
            and value.startswith("${")
            and value[2:-1] in document["set"]
        )
        return document["set"][value[2:-1]] if is_name else value

    jsonschema.validate(filled(document), plan_schema())


def test_the_published_schema_is_up_to_date() -> None:
    """After a change of the grammar: python -m scripts.make_docs"""
    assert (
        msgspec.json.decode(
            (REPOSITORY / "plans" / "sweep-plan.schema.json").read_bytes()
        )
        == plan_schema()
    )
    jsonschema.Draft202012Validator.check_schema(plan_schema())


def test_the_schema_refuses_what_the_reader_refuses() -> None:
    wrong = yaml.safe_load(SHORT.replace("model: qwen", "modle: qwen"))
    with pytest.raises(jsonschema.ValidationError, match="modle"):
        jsonschema.validate(wrong, plan_schema())
    jsonschema.validate(yaml.safe_load(SHORT), plan_schema())


def test_the_short_form_is_a_plan() -> None:
    serve = "CUDA_VISIBLE_DEVICES=0 llama-server -m m.gguf -t {t} -ngl {ngl} --port 8080 -a 'my model'"
    document = plan_document(
        [serve],
        ["t=1,2,4", "ngl=0,99"],
        ["-f", "synthetic", "-u", "8", "--num-prompts=64", "--ignore-eos"],
        2,
    )
    cells = cells_of(yaml.safe_dump(document, sort_keys=False))
    assert len(cells) == 3 * 2 * 2
    assert cells[1].server.settings["args"] == ["-t '1' -ngl '99' -a 'my model'"]
    assert cells[1].server.settings["env"] == {"CUDA_VISIBLE_DEVICES": "0"}
    assert cells[1].server.settings["model"] == "m.gguf"
    assert cells[1].flags == {
        "u": ["8"],
        "num-prompts": ["64"],
        "ignore-eos": [True],
        "seed": [0],
    }


def test_a_server_that_runs_on_gets_prompts_that_it_has_not_cached() -> None:
    """Cells of a repeat send the same prompts; what the plan itself gives comes first."""
    running = "servers: {a: {url: 'http://x'}}\nload: {u: 1%s}\n%s"
    for rest, more, expected in (
        ("", "", [True]),
        ("", "cache: empty", None),
        (", bust-prefix-cache: false", "", [False]),
        (", cache-prompt: 'off'", "", None),
    ):
        assert (
            cells_of(running % (rest, more))[0].flags.get("bust-prefix-cache")
            == expected
        )
    assert "bust-prefix-cache" not in cells_of(SHORT)[0].flags


def test_two_servers_of_a_kind_are_two_servers() -> None:
    document = plan_document(["llama-server -m a", "llama-server -m b"], [], [], 1)
    assert [each["llama-server"]["model"] for each in document["servers"].values()] == [
        "a",
        "b",
    ]


@pytest.mark.parametrize(
    ("serve", "kind", "settings"),
    [
        ("llama-load serve", "embedded", {"args": []}),
        ("llama-load serve -- -c 4096", "embedded", {"args": ["-c 4096"]}),
        (
            "llama-load serve llama-server --model m.gguf --port 1 -- -np 8",
            "llama-server",
            {"model": "m.gguf", "args": ["-np 8"]},
        ),
        (
            "A=1 llama-load serve vllm --program /v --model q",
            "vllm",
            {"env": {"A": "1"}, "program": "/v", "model": "q", "args": []},
        ),
    ],
)
def test_a_server_that_llama_load_starts_is_one_of_a_plan(
    serve: str, kind: str, settings: dict[str, object]
) -> None:
    document = plan_document([serve], [], [], 1)
    assert document["servers"] == {kind: {kind: settings}}


@pytest.mark.parametrize(
    ("serve", "vary", "arguments", "expected"),
    [
        (["llama-load serve --slots 4"], [], [], "own flags after -- instead of"),
        (["llama-server -m m"], ["t"], [], "--vary must be NAME=VALUE"),
        (
            ["llama-server -m m"],
            ["t=1,2"],
            [],
            "neither --serve nor the arguments of locust have {t}",
        ),
        (["llama-server -t {t}"], ["t=1,2", "t=4"], [], "--vary t is given twice"),
        (["nginx -c x"], [], [], "--serve cannot start nginx"),
        (["llama-server 'x"], [], [], "No closing quotation"),
        (["A=1"], [], [], "--serve takes a command"),
        (["http://x"], [], ["--num-promts", "3"], "did you mean num-prompts"),
        (["http://x"], [], ["four"], "must be flags"),
    ],
)
def test_a_short_form_that_cannot_be_is_refused(
    serve: list[str], vary: list[str], arguments: list[str], expected: str
) -> None:
    with pytest.raises(UsageError) as raised:
        plan_document(serve, vary, arguments, 1)
    assert expected in str(raised.value)


def test_the_time_needed_is_that_of_the_plan() -> None:
    """Two stages of a minute and 5 s beside them; a number of requests has no known time."""
    cells = cells_of("""
servers: {a: {url: 'http://x'}}
load: [{stages: "1,8", t: 1m}, {u: 4, num-prompts: 64}, {u: 8, num-prompts: 64, takes-s: 30}]
""")
    assert needed_s(cells, cells, {}) == (125.0 + 30.0, 1)
    unknown = [cell for cell in cells if planned_s(cell) is None]
    both = "about 3 min and 1 cell of unknown time"
    assert needed_text(cells, cells, {}) == both
    assert needed_text(unknown, cells, {}) == "1 cell of unknown time"
    assert needed_text([], cells, {}) == "about 0 s"
    assert [time_s(text) for text in ("90s", "5m", "1h30m", "20", "", "x")] == [
        90,
        300,
        5400,
        20,
        None,
        None,
    ]
