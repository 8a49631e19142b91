"""Whether prompts get the same answer under load as alone (--same-answer)."""

from llama_load.analysis.topics.same_answers.same_answer_tables import (
    same_answer_plain,
    same_answer_tables,
)
from llama_load.analysis.topics.same_answers.same_answers import same_answers
from llama_load.analysis.topics.topic import Topic

SAME_ANSWERS = Topic(
    "same_answers",
    same_answers,
    same_answer_tables,
    same_answer_plain,
    chinese={
        "Same Answers under Load": "负载下回答是否相同",
        "answers": "回答",
        "compared with the answer alone": "与单独请求时的回答比较",
        "different": "不同",
    },
)
