"""Answers that are forced into a form (--json-schema, --grammar)."""

from llama_load.analysis.topics.answer_forms.form_figures import answer_forms
from llama_load.analysis.topics.answer_forms.form_tables import NOTE, form_tables
from llama_load.analysis.topics.topic import Topic

ANSWER_FORMS = Topic(
    "answer_forms",
    answer_forms,
    form_tables,
    empty=(),
    chinese={
        "Forms of Answers": "回答的格式",
        "form": "格式",
        "valid": "有效",
        "cut off": "被截断",
        NOTE: (
            "tokens 为每个回答的均值，TTFT 与 TPOT 为中位数；"
            "两种格式同时计算，因此某种格式对所有请求的代价要通过比较两次测试得出"
        ),
    },
)
