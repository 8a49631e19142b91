"""What is read from servers' logs: real logs of several versions, and any text."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_load.analysis.reports.server_section import server_lines
from llama_load.run_folder.observed.server_description import Buffers, ServerDescription
from llama_load.run_folder.server_files import ServerFiles, write_server_files
from llama_load.servers.kinds.llama_cpp_log import ServerLog, read_log
from llama_load.servers.serving.command_flags import read_command
from llama_load.servers.serving.describe import described, read_log_file
from llama_load.servers.serving.last_words import ends_of, last_words
from llama_load.servers.serving.rpc_traffic import Traffic, read_ss

LOGS = Path(__file__).parent / "logs"


def log_of(name: str) -> ServerLog:
    return read_log((LOGS / name).read_text().splitlines())


def server_of(name: str, command: tuple[str, ...] = ()) -> ServerDescription:
    return described(ServerDescription(url="http://x"), command, log_of(name))


def buffers(
    device: str, model_mib: float = 0.0, kv_mib: float = 0.0, compute_mib: float = 0.0
) -> Buffers:
    return Buffers(
        device=device, model_mib=model_mib, kv_mib=kv_mib, compute_mib=compute_mib
    )


def test_a_log_of_llama_server() -> None:
    """At the level of ours: model, slots, threads, KV cache, buffers, breakdown, what the fit
    did."""
    log, facts = log_of("llama_server.log"), server_of("llama_server.log")
    assert (facts.model, facts.quantization, facts.n_params, facts.model_bytes) == (
        *("llama-load-demo", "all F32", 5_170_000),
        round(19.72 * 2**20),
    )
    assert (
        facts.slots,
        facts.context,
        facts.context_per_slot,
        facts.batch,
        facts.micro_batch,
    ) == (2, 4096, 2048, 2048, 512)
    assert (
        facts.threads,
        facts.threads_batch,
        facts.flash_attention,
        facts.kv_types,
    ) == (1, 1, "enabled", "K f16, V f16")
    assert facts.buffers == [
        buffers("CPU_Mapped", 19.72),
        buffers("CPU", kv_mib=8.0, compute_mib=10.57),
    ]
    assert facts.memory_lines[0].startswith("| memory breakdown [MiB] |")
    assert [line.split() for line in facts.memory_lines[1:]] == [
        "| - Host | 38 = 19 + 8 + 10 |".split()
    ]
    assert facts.fit_lines[-1] == "successfully fit params to free device memory"
    assert any("KV buffer size" in line for line in log.memory_lines)
    by_api = ServerDescription(url="http://x", model="m", slots=7, quantization="Q8")
    server = described(
        by_api, ("llama-server", "-c", "1", "-np", "3", "-ngl", "9"), log
    )
    # The API knows the slots, the log the context and the quantization; the command line what
    # neither has.
    assert (
        server.model,
        server.slots,
        server.context,
        server.quantization,
        server.n_gpu_layers,
    ) == ("m", 7, 4096, "all F32", "9")


def test_a_log_that_is_appended_to_is_that_of_its_last_server() -> None:
    lines = (LOGS / "llama_server.log").read_text().splitlines()
    assert read_log([*lines, *lines]).buffers == read_log(lines).buffers


def test_what_a_fit_only_tried_is_not_counted() -> None:
    """At the debug level the log has the buffers of the trial, too."""
    assert (
        log_of("llama_server_debug.log").buffers == log_of("llama_server.log").buffers
    )


def test_a_log_of_llama_cpp_python_with_rpc_workers() -> None:
    server = server_of("llama_cpp_python_rpc.log")
    assert (server.layers_offloaded, server.layers) == (3, 3)
    assert [worker.address for worker in server.rpc] == log_of(
        "llama_cpp_python_rpc.log"
    ).rpc_seen
    assert [worker.model_mib for worker in server.rpc] == [8.0, 5.86]


def test_a_log_with_gpus_and_an_unused_worker() -> None:
    server = server_of("two_gpus.log", ("llama-server", "--rpc", "mlbox.local:50052"))
    assert (server.build, server.quantization, server.n_params) == (
        "b7003-596a297cb",
        "Q4_K - Medium",
        30_530_000_000,
    )
    assert (
        server.layers_offloaded,
        server.layers,
        server.slots,
        server.context_per_slot,
    ) == (49, 49, 4, 131072)
    assert [line.split()[2] for line in server.memory_lines] == [
        "breakdown",
        "RPC0",
        "CUDA0",
        "CUDA1",
        "Host",
    ]
    assert log_of("two_gpus.log").rpc_seen == ["mlbox.local:50052"]
    assert server.devices == ["CUDA", "CPU"]
    assert server.rpc_unused == ["mlbox.local:50052"]
    assert "NOT USED" in "\n".join(server_lines([server]))


def test_a_log_of_2024() -> None:
    server = server_of("year_2024.log")
    assert (server.build, server.quantization, server.model) == (
        "b9-f702a90",
        "Q4_K - Small",
        "DeepSeek-Coder-V2-Instruct",
    )
    assert [worker.address for worker in server.rpc] == ["localhost:50052"]
    assert server.buffers[1] == buffers("CUDA0", 5434.38, 1536.0, 672.01)


WORDS = st.sampled_from(
    [
        *(
            "load_tensors: ",
            "CUDA0 ",
            "RPC0[h:1] ",
            "model ",
            "KV ",
            "buffer size = ",
            "1.5",
            "9" * 30,
            " MiB",
            "-",
            "²",
            "٣",
            "\x1b[31m",
        ),
        *(
            "| memory breakdown [MiB] |",
            "|   - ",
            " | ",
            " = ",
            " + (",
            ")",
            " + ",
            "n_slots = ",
            "offloaded 1/",
            " layers to GPU",
        ),
        *(
            "print_info: file size   = ",
            " GiB",
            "model params = ",
            " B",
            "layer 1 assigned to device ",
            "build: 1 (x)",
            "\u202e",
            " ",
        ),
    ]
)


@given(
    st.lists(
        st.lists(WORDS | st.text(max_size=5), max_size=12).map("".join), max_size=12
    )
)
def test_any_text_is_read(lines: list[str]) -> None:
    """Never an error, and the report's lines hold no control characters."""
    server = described(ServerDescription(url="http://x"), ("a",), read_log(lines))
    assert all(line.isprintable() for line in server_lines([server]))


def test_a_hostile_line_is_read_in_linear_time() -> None:
    """Half a second for each line of 500 brackets: a quarter of an hour for the log that is read of
    a server."""
    begun_s = time.process_time()
    read_log(
        ["x[" * 125 + "]" * 250, "[" * 500, "[]" * 250, " " * 499 + "x", "x " * 250]
        * 20
    )
    assert time.process_time() - begun_s < 2


def test_commands_of_the_servers() -> None:
    """A `;` between RPC workers is what was meant, not what the server understands."""
    facts = read_command(
        (
            "llama-server",
            "-m",
            "a.gguf",
            "-ngl",
            "99",
            "-t=8",
            "--rpc",
            "a:1;b:2",
            "-ctk",
            "q8_0",
            "-b",
            "x",
        )
    )
    own = {
        "model": "a.gguf",
        "n_gpu_layers": "99",
        "threads": 8,
        "rpc": ["a:1", "b:2"],
        "kv_types": "K q8_0",
    }
    nothing = {"rpc": [], "context_shift": False}
    assert facts == nothing | own
    served = read_command(("vllm", "serve", "Qwen/Qwen3-0.6B", "--max-num-seqs", "16"))
    assert served == nothing | {"model": "Qwen/Qwen3-0.6B", "slots": 16}
    assert (
        read_command(
            (
                "python",
                "-m",
                "llama_load.servers.serving.embedded_server",
                "-m",
                "a.gguf",
            )
        )["model"]
        == "a.gguf"
    )
    assert read_command(()) == nothing
    wrapped = (
        "numactl",
        "-m",
        "0",
        "taskset",
        "-c",
        "3",
        "/opt/llama-server",
        "-t",
        "4",
    )
    assert read_command(wrapped) == nothing | {"threads": 4}


def test_a_worker_lost_to_a_semicolon_is_unused() -> None:
    """The server took the address "a:1;b:2" for a:1."""
    log = [
        "load_tensors: RPC0[a:1] model buffer size = 8.00 MiB",
        "load_tensors: CPU model buffer size = 1.00 MiB",
    ]
    server = described(
        ServerDescription(url="http://x"),
        ("llama-server", "--rpc", "a:1;b:2"),
        read_log(log),
    )
    assert server.rpc_unused == ["b:2"]


def test_last_words_name_the_cause_and_skip_a_debuggers_output(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    lines = [
        "request 1",
        "/build/ggml/src/ggml-rpc/ggml-rpc.cpp:569: Remote RPC server crashed or returned malformed response",
    ]
    log.write_text(
        "\n".join(
            [
                *lines,
                *(f"#{number}  0x00 in frame ()" for number in range(60)),
                "[Inferior 1 detached]",
            ]
        )
    )
    words = last_words(log)
    assert words.startswith(f"an RPC worker was lost; {log} ends with:\nrequest 1\n")
    assert "frame" not in words
    log.write_text(
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 5 MiB on device 0: cudaMalloc failed: out of memory\nbye\n"
    )
    assert last_words(log).startswith("out of memory; ")
    assert last_words(tmp_path / "none.log") == ""
    log.write_bytes(b"\xff\x00\x1b[2J" * 10)
    assert last_words(log).splitlines()[-1].isprintable()


def test_the_ends_of_a_large_log_are_enough(tmp_path: Path) -> None:
    """The load at its beginning, the breakdown at its end."""
    log = tmp_path / "server.log"
    table = "x: | memory breakdown [MiB] | total |\nx: |   - Host | 9 = 1 + 2 + 6 |\n"
    log.write_text("print_info: file type   = Q8_0\n" + "request\n" * 2**20 + table)
    read = read_log_file(log)
    assert read.facts["quantization"] == "Q8_0"
    assert read.memory_table == [
        "| memory breakdown [MiB] | total |",
        "|   - Host | 9 = 1 + 2 + 6 |",
    ]


def test_the_kernels_figures_of_connections_to_workers() -> None:
    """Of the server's end alone; both connections to a worker count."""
    text = (
        "0 0 127.0.0.1:40961 127.0.0.1:56354\n\t bbr rtt:0.031/0.012 bytes_sent:23 bytes_received:8638047 minrtt:0.001\n"
        "0 0 127.0.0.1:58702 127.0.0.1:58233\n\t bbr rtt:0.346/0.07 bytes_sent:6197149 bytes_received:528612 minrtt:0.002\n"
        "0 0 127.0.0.1:58703 127.0.0.1:58233\n\t bbr rtt:0.5/0.07 bytes_sent:1 bytes_received:2\nnonsense\n"
    )
    endpoints = {"localhost:58233": {"127.0.0.1:58233"}, "gone:1": set()}
    assert read_ss(text, endpoints) == {
        "localhost:58233": Traffic(6197150, 528614, 0.002)
    }


def test_texts_in_a_verbose_log_are_not_kept(tmp_path: Path) -> None:
    """Neither in the run folder nor in the last words."""
    log = tmp_path / "server.log"
    quoting = [
        'D slot launch_slot_: launching slot : {"id":3,"prompt":"zebra"}',
        "INFO Received request cmpl-1: prompt: 'zebra', params: SamplingParams()",
        'D srv: request: {"messages":[{"role":"user","content":"zebra"}]}',
        "D slot process_token: next token: 77 'zebra'",
    ]
    log.write_text("\n".join(["I loaded", *quoting, "E failed"]))
    assert "zebra" not in last_words(log)
    write_server_files(
        tmp_path, [ServerFiles(ends_of(log), ("one",), "llama-server -m x")]
    )
    kept = (tmp_path / "server" / "server.log").read_text().splitlines()
    assert (kept[0], kept[-1], len(kept)) == ("I loaded", "E failed", 6)
    assert not any("zebra" in line for line in kept)


def test_each_server_has_a_folder_and_a_long_log_loses_its_middle(
    tmp_path: Path,
) -> None:
    write_server_files(
        tmp_path,
        [ServerFiles(command="a"), ServerFiles(("x" * 2**19 + "y" * 10, "z" * 2**19))],
    )
    assert (tmp_path / "server" / "1" / "command").read_text() == "a\n"
    text = (tmp_path / "server" / "2" / "server.log").read_text()
    assert text.endswith("z\n")
    assert "left out" in text
    assert "y" not in text


def test_tabs_in_last_words_are_spaces(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("sampler params:\n\ttop_k = 40\n")
    assert "  top_k = 40" in last_words(log)


def test_a_draft_model_is_apart_from_the_model() -> None:
    """One log describes both; layers, sizes, buffers and breakdown of the draft model stand in a
    part of their own."""
    server = server_of("draft_model.log", ("llama-server", "-md", "draft.gguf"))
    assert (server.layers_offloaded, server.layers, server.model_bytes) == (
        0,
        9,
        round(143.48 * 2**20),
    )
    assert server.buffers == [
        buffers("CPU_Mapped", 143.48),
        buffers("CPU", kv_mib=32.0, compute_mib=pytest.approx(19.07)),
    ]
    assert server.draft is not None
    assert (
        server.draft.layers,
        server.draft.model_bytes,
        server.draft.quantization,
    ) == (1, round(14.23 * 2**20), "all F32")
    assert "Draft model:     14.2 MiB, all F32, 1 layer" in "\n".join(
        server_lines([server])
    )


def test_buffers_of_a_draft_model_are_shown_as_such() -> None:
    lines = [
        "load_tensors: CPU model buffer size = 100.00 MiB",
        "common_speculative_init_result: loading draft model 'd.gguf'",
        "load_tensors: CPU model buffer size = 10.00 MiB",
        "srv load_model: initializing, n_slots = 2, n_ctx_slot = 2048, kv_unified = 'false'",
        "memory_breakdown_print: | memory breakdown [MiB] | total   free    self   model   context   compute    unaccounted |",
        "memory_breakdown_print: |   - Host               |                  194 =   143 +      32 +      19                |",
    ]
    server = described(ServerDescription(url="http://x"), (), read_log(lines))
    assert server.draft is not None
    assert [server.buffers[0].model_mib, server.draft.buffers[0].model_mib] == [
        100.0,
        10.0,
    ]
    assert (server.slots, len(server.memory_lines), server.memory_is_forecast) == (
        2,
        2,
        False,
    )
    text = "\n".join(server_lines([server]))
    assert "CPU, draft      10.0" in text


def test_the_breakdown_of_a_fit_is_a_forecast() -> None:
    """It is printed before the model is loaded; the real one comes at the server's exit."""
    lines = (LOGS / "shared_pool.log").read_text().splitlines()
    end = max(number for number, line in enumerate(lines) if "memory breakdown" in line)
    assert read_log(lines[:end]).memory_is_forecast
    assert not read_log(lines).memory_is_forecast


def test_a_log_of_json_lines() -> None:
    server = server_of("jsonl.log")
    assert (server.model, server.quantization, server.slots) == (
        "llama-load-demo",
        "all F32",
        2,
    )
    assert server.memory_lines[-1].endswith("|")


def test_slots_that_share_one_pool() -> None:
    server = server_of("shared_pool.log")
    assert (server.kv_unified, server.context, server.slots) == (True, 2048, 4)
    assert "2048 tokens, 4 slots which share them" in "\n".join(server_lines([server]))


def test_context_shifts_are_counted() -> None:
    server = server_of("context_shift.log")
    assert server.context_shifts == 4
    assert "shifted 4 times" in " ".join(" ".join(server_lines([server])).split())


@pytest.mark.parametrize(
    ("asked", "shown"),
    [(2048, "instead of the 2048 of --image-max-tokens, by"), (-1, "tokens each, by")],
)
def test_images_that_a_micro_batch_caps_are_reported(asked: int, shown: str) -> None:
    """The text of llama.cpp b11434, from the program."""
    line = f"0.00.1 W srv    load_model: cap image_max_tokens (original={asked}) to 512 (n_ubatch = 512) because of attention"
    server = described(ServerDescription(url="http://x"), (), read_log([line]))
    assert (server.image_tokens_asked, server.image_tokens_cap) == (asked, 512)
    text = " ".join(" ".join(server_lines([server])).split())
    assert "Images: capped at 512 tokens each" in text
    assert shown in text
    assert "Images" not in "".join(
        server_lines([described(ServerDescription(url="http://x"), (), read_log([]))])
    )


def test_a_build_for_cpus_offloads_nothing() -> None:
    """It prints "offloaded 3/3 layers to GPU" all the same."""
    server = server_of("shared_pool.log")
    assert (server.devices, server.layers_offloaded, server.layers) == (["CPU"], 0, 3)


def test_a_semicolon_in_a_real_log() -> None:
    """llama-server names one device after both addresses, and uses the first."""
    first, second = "127.0.0.1:33501", "127.0.0.1:33502"
    server = server_of(
        "rpc_semicolon.log", ("llama-server", "--rpc", f"{first};{second}")
    )
    assert [(worker.address, worker.model_mib) for worker in server.rpc] == [
        (first, 13.87),
        (second, 0.0),
    ]
    assert server.rpc_unused == [second]


def test_the_models_of_a_router_are_apart() -> None:
    """Their processes write into one log, each line with its port."""
    log = log_of("router.log")
    assert not {"model", "slots"} & log.facts.keys()
    server = described(ServerDescription(url="http://x", model="tiny"), (), log)
    assert (server.slots, server.context, server.layers) == (2, 4096, 3)
    assert " 38 = " in server.memory_lines[1]
    assert sum("[35499]" in line for line in log.memory_lines) > 5


def test_wakes_of_a_server_that_sleeps_are_counted() -> None:
    """Lines of b11434 with --sleep-idle-seconds 2; the model's load follows each wake."""
    lines = """
0.02.902.805 I que    start_loop: entering sleeping state
0.02.903.179 I srv  handle_sleep: server is entering sleeping state
0.10.698.812 I que    start_loop: exiting sleeping state
0.10.698.822 I srv  handle_sleep: server is exiting sleeping state
0.10.700.000 I system_info: n_threads = 1 (n_threads_batch = 1) / 2
0.13.903.179 I srv  handle_sleep: server is entering sleeping state
""".splitlines()
    server = described(ServerDescription(url="http://x"), (), read_log(lines))
    assert server.wakes == 1
    text = " ".join(" ".join(server_lines([server])).split())
    assert "1 time it woke during the run" in text


def test_the_time_in_which_prompts_were_copied_to_the_cache_is_added_up() -> None:
    """Lines of b11434 on a GPU with -lv 4: two prompts, 53 ms each. What is removed from the cache,
    and lines without a stamp, take no time."""
    lines = """
0.05.469.520 I srv  get_availabl: updating prompt cache
0.05.469.560 I srv   prompt_save:  - saving prompt with length 136, total state size = 2.924 MiB (draft: 0.000 MiB)
0.05.522.751 I srv          load:  - looking for better prompt, base f_keep = 0.007, f_sim = 0.125
	repeat_last_n = 64, repeat_penalty = 1.000
0.05.522.869 I slot process_sing: id  1 | task -1 | saving idle slot to prompt cache
0.05.522.900 I srv   prompt_save:  - saving prompt with length 136, total state size = 2.924 MiB (draft: 0.000 MiB)
	repeat_last_n = 64, repeat_penalty = 1.000
0.05.576.352 I srv        update:  - cache state: 36 prompts, 274.994 MiB (limits: 8192.000 MiB, 4096 tokens, 381070 est)
0.05.683.426 I srv   prompt_save:  - saving prompt with length 136, total state size = 2.924 MiB (draft: 0.000 MiB)
""".splitlines()
    server = described(ServerDescription(url="http://x"), (), read_log(lines))
    assert server.prompt_saves_ms == pytest.approx(53.191 + 53.452)
    text = " ".join(" ".join(server_lines([server])).split())
    assert "for 0.11 s it copied prompts from slots" in text


def test_evictions_of_a_router_are_counted() -> None:
    log = [
        "srv unload_lru: models_max limit reached, removing LRU name=tiny",
        "srv tick: evicting idle LRU name=a for a queued request",
    ]
    server = described(ServerDescription(url="http://x"), (), read_log(log))
    assert server.evictions == 2
    assert "2 times since its start a model was unloaded" in " ".join(
        " ".join(server_lines([server])).split()
    )
