"""Prompts and data."""

from __future__ import annotations

from llama_load.loadgen.options.flag import (
    ADVANCED,
    AGENT,
    CONVERSATIONS,
    CUSTOM,
    DOCUMENTS,
    MIXED,
    REPLAY,
    SHAREGPT,
    SYNTHETIC,
    TEXTS,
    TRAFFIC,
    VISION,
    Flag,
    Kind,
    Role,
)
from llama_load.loadgen.workloads.documents import DOCUMENT_TOKENS
from llama_load.loadgen.workloads.embeddings import PASSAGE_TOKENS
from llama_load.loadgen.workloads.images import FORMATS
from llama_load.loadgen.workloads.prompt_plan import (
    ANSWER_TOKENS,
    ROUNDS,
    SYSTEM_TOKENS,
    TOOL_OUTPUT_TOKENS,
    Traffic,
)
from llama_load.loadgen.workloads.synthetic import INPUT_TOKENS
from llama_load.loadgen.workloads.think_time import EXAMPLES as EXAMPLES_OF_THINKING
from llama_load.run_folder.vocabulary.document_caches import CACHES

GENERATED = "generated"
RECORDED = "recorded"
HISTORIES = (GENERATED, RECORDED)
ALL = "all"  # of the turns of a conversation
_TRAFFIC = Traffic()
_AGENT = _TRAFFIC.agent
DEFAULT_SIZE = "{}x{}".format(*_TRAFFIC.image_size)

PROMPT_FLAGS = (
    Flag(
        "--dataset-path",
        Kind.DATA_SET,
        TRAFFIC,
        "",
        "prompts or conversations: JSON, JSON Lines, CSV or Parquet (also .gz, .zst), or "
        "hf:REPO[:configuration][:split] (default: the bundled sample)",
        begins="Prompts and data",
        title="Data set",
        workloads=(SHAREGPT, CUSTOM, CONVERSATIONS),
        role=Role.REPORTED,
    ),
    Flag(
        "--columns",
        Kind.EXPRESSION,
        TRAFFIC,
        "",
        "names of a data set's or trace's columns, such as prompt=text,max_tokens=len: these are "
        "read, and no others (default: by the names that programs give them)",
        workloads=(SHAREGPT, CUSTOM, CONVERSATIONS, REPLAY),
        role=Role.PROMPTS,
    ),
    Flag(
        "--sharegpt-output-len",
        Kind.NUMBER,
        ADVANCED,
        "",
        "same as --output-len, in tokens (the name that vllm bench serve uses)",
        title="Answer length (vLLM's name)",
        workloads=(SHAREGPT,),
    ),
    Flag(
        "--turns",
        Kind.NUMBER,
        TRAFFIC,
        "",
        "number of turns to send of each conversation, or all (default: 1 of sharegpt_chat.py, "
        "all of conversations.py)",
        title="Turns of each conversation",
        workloads=(SHAREGPT, CONVERSATIONS),
        role=Role.PROMPTS,
    ),
    Flag(
        "--history",
        Kind.CHOICE,
        TRAFFIC,
        GENERATED,
        "history sent with later turns: the model's own answers, or those in the data set",
        HISTORIES,
        workloads=(SHAREGPT, CONVERSATIONS),
        role=Role.PROMPTS,
    ),
    Flag(
        "--think-time",
        Kind.TIMES,
        TRAFFIC,
        "",
        f"seconds that a user waits before a later question, such as {EXAMPLES_OF_THINKING} "
        "(default: as recorded in the data set, else 0)",
        workloads=(SHAREGPT, CONVERSATIONS),
        role=Role.SHAPE,
    ),
    Flag(
        "--rounds",
        Kind.NUMBER,
        TRAFFIC,
        "",
        f"synthetic agents: rounds of a tool call and its output (default {ROUNDS}, fewer where "
        "a slot is very small)",
        workloads=(AGENT,),
        role=Role.PROMPTS,
    ),
    Flag(
        "--system-tokens",
        Kind.NUMBER,
        TRAFFIC,
        "",
        f"synthetic agents: length of the system prompt (default {SYSTEM_TOKENS}, less where a "
        "slot is small)",
        workloads=(AGENT,),
        role=Role.PROMPTS,
    ),
    Flag(
        "--tools",
        Kind.NUMBER,
        TRAFFIC,
        str(_AGENT.tools),
        "synthetic agents: number of tools, 0 to 8",
        workloads=(AGENT,),
        role=Role.PROMPTS,
    ),
    Flag(
        "--tool-output-tokens",
        Kind.NUMBER,
        TRAFFIC,
        "",
        f"synthetic agents: length of a tool's output in tokens (default {TOOL_OUTPUT_TOKENS}, "
        "less where a slot is small)",
        workloads=(AGENT,),
        role=Role.PROMPTS,
    ),
    Flag(
        "--tool-time",
        Kind.TIMES,
        TRAFFIC,
        "",
        "synthetic agents: seconds that a tool runs, as in --think-time (default 0)",
        workloads=(AGENT,),
        role=Role.SHAPE,
    ),
    Flag(
        "--sub-agents",
        Kind.NUMBER,
        TRAFFIC,
        "0",
        "synthetic agents: sub-agents that each one starts in its first round, with half as many "
        "rounds, and waits for",
        workloads=(AGENT,),
        role=Role.PROMPTS,
    ),
    Flag(
        "--system-prompt",
        Kind.TEXT,
        TRAFFIC,
        "",
        "text of a system message at the start of every conversation (default: none)",
        workloads=(SHAREGPT, CUSTOM, CONVERSATIONS),
        role=Role.PROMPTS,
    ),
    Flag(
        "--document",
        Kind.INPUT,
        TRAFFIC,
        "",
        "a file or folder of documents (default: the bundled sample)",
        workloads=(DOCUMENTS, *TEXTS),
    ),
    Flag(
        "--document-tokens",
        Kind.NUMBER,
        TRAFFIC,
        str(DOCUMENT_TOKENS),
        "length of a document in tokens: documents are cut or repeated to it",
        workloads=(DOCUMENTS,),
        role=Role.PROMPTS,
    ),
    Flag(
        "--document-cache",
        Kind.CHOICE,
        TRAFFIC,
        _TRAFFIC.document_cache,
        "make every prompt different, share one document between all questions, or send "
        "documents as they are",
        CACHES,
        workloads=(DOCUMENTS,),
        role=Role.PROMPTS,
    ),
    Flag(
        "--question",
        Kind.TEXT,
        TRAFFIC,
        "",
        "question about the document or the images (default: several bundled ones)",
        workloads=(DOCUMENTS, VISION),
        role=Role.PROMPTS,
    ),
    Flag(
        "--images",
        Kind.DATA_SET,
        TRAFFIC,
        "",
        "images: a file, a folder or hf:REPO[:split] (default: generated, no two alike)",
        workloads=(VISION,),
        role=Role.PROMPTS,
    ),
    Flag(
        "--image-size",
        Kind.EXPRESSION,
        TRAFFIC,
        DEFAULT_SIZE,
        "size of generated images in pixels, WIDTHxHEIGHT",
        workloads=(VISION,),
        role=Role.PROMPTS,
    ),
    Flag(
        "--image-format",
        Kind.CHOICE,
        TRAFFIC,
        _TRAFFIC.image_format,
        "encoding of generated images",
        FORMATS,
        workloads=(VISION,),
        role=Role.PROMPTS,
    ),
    Flag(
        "--images-per-request",
        Kind.NUMBER,
        TRAFFIC,
        "1",
        "number of images per request",
        workloads=(VISION,),
        role=Role.PROMPTS,
    ),
    Flag(
        "--weights",
        Kind.EXPRESSION,
        TRAFFIC,
        "",
        "shares of the tasks of a mixture, such as document=3,vision=1 (default: equal)",
        title="Shares of the tasks",
        workloads=(MIXED,),
        role=Role.PROMPTS,
    ),
    Flag(
        "--category",
        Kind.NAME,
        TRAFFIC,
        "",
        "of your own prompts send only these categories, such as code,prose (default: all)",
        workloads=(CUSTOM,),
        role=Role.PROMPTS,
    ),
    Flag(
        "--batch-size",
        Kind.NUMBER,
        TRAFFIC,
        "1",
        "number of texts per embeddings request, documents per rerank request",
        workloads=TEXTS,
        role=Role.PROMPTS,
    ),
    Flag(
        "--input-len",
        Kind.NUMBER,
        TRAFFIC,
        "",
        "prompt length in tokens, BOS included, chat template not "
        f"(default: synthetic {INPUT_TOKENS}, embeddings and rerank {PASSAGE_TOKENS})",
        title="Prompt length",
        workloads=(*TEXTS, SYNTHETIC, REPLAY, AGENT),
        role=Role.PROMPTS,
    ),
    Flag(
        "--output-len",
        Kind.NUMBER,
        TRAFFIC,
        "",
        "answer length to ask for in tokens (default: the data set's; synthetic prompts, "
        f"documents and images {ANSWER_TOKENS})",
        title="Answer length",
        workloads=(
            SHAREGPT,
            CUSTOM,
            CONVERSATIONS,
            AGENT,
            DOCUMENTS,
            VISION,
            SYNTHETIC,
            REPLAY,
        ),
    ),
    Flag(
        "--range-ratio",
        Kind.NUMBER,
        TRAFFIC,
        "0",
        "synthetic prompts: vary lengths by up to this fraction, from 0 to below 1",
        title="Variation of lengths",
        workloads=(SYNTHETIC,),
        role=Role.PROMPTS,
    ),
    Flag(
        "--prefix-len",
        Kind.NUMBER,
        TRAFFIC,
        "0",
        "synthetic prompts: length of a shared prefix in tokens",
        title="Length of a shared prefix",
        workloads=(SYNTHETIC,),
        role=Role.PROMPTS,
    ),
    Flag(
        "--num-prefixes",
        Kind.NUMBER,
        TRAFFIC,
        "1",
        "synthetic prompts: number of different shared prefixes, used in turn",
        title="Number of shared prefixes",
        workloads=(SYNTHETIC,),
        role=Role.PROMPTS,
    ),
    Flag(
        "--tokenizer",
        Kind.INPUT,
        ADVANCED,
        "",
        "a tokenizer.json (or its folder) that counts prompt tokens (default: the server, else "
        "an estimate)",
    ),
    Flag(
        "--prompt-token-ids",
        Kind.SWITCH,
        ADVANCED,
        "",
        "send prompts as token ids, made with --tokenizer (about 1 ms per 1000 tokens), to "
        "--endpoint completions or completion",
        role=Role.PROMPTS,
    ),
    Flag(
        "--keep-long-prompts",
        Kind.SWITCH,
        ADVANCED,
        "",
        "send prompts that do not fit a slot instead of replacing them",
        role=Role.PROMPTS,
    ),
    Flag(
        "--seed",
        Kind.NUMBER,
        ADVANCED,
        "",
        "random seed: the same seed gives the same prompts and arrivals, to the letter (default: "
        "0, with prompts made new for "
        "each run, so that no server has them cached)",
    ),
)
