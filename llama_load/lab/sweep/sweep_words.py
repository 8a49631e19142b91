"""Words and sentences of sweeps in Chinese, by their English."""

from __future__ import annotations

from llama_load.ground.languages import Translator

# fmt: off
_CHINESE = {
    "Effects of settings": "设置的影响",
    "Notes": "备注",
    "Memory breakdown": "内存占用",
    "cells: {cells}, {failed} without a result": "单元：{cells}，其中 {failed} 个没有结果",
    "; rows that are not ranked: {rows} of {all_rows}": "；不参与排名的行：{rows}/{all_rows}",
    "Charts": "图表",
    "{count} more notes: {file}": "另有 {count} 条备注：{file}",
    "Sweep folder: {path} ({files})": "结果文件夹：{path}（{files}）",
    "all rows": "所有行",
    "{change} {figure} from {first} to {second}": "{figure} 从 {first} 到 {second}：{change}",
    "{low} to {high}": "{low} 至 {high}",
    "no two of its values have comparable results in {figure}":
        "任意两个取值的 {figure} 均不可比较",
    "{largest}, with one run each: not proven; give repeats: 3":
        "{largest}；每个取值只运行一次，未证实；请设置 repeats: 3",
    "{largest}, not proven: {order}": "{largest}，未证实：{order}",
    "{largest} (95 %: {interval}; p = {p})": "{largest}（95 %：{interval}；p = {p}）",
    "no effect shown; the largest difference is {text}; {found} would have been found with 95 %":
        "未见影响；最大差异为 {text}；若差异达到 {found}，有 95 % 的把握发现",
    "; results that are not ranked and left out: {count}": "；不参与排名而略去的结果：{count}",
    "; left out: {reason}": "；略去：{reason}",
    "; and for {count} more": "；另有 {count} 个原因",
}
# fmt: on


def sweep_words(language: str) -> Translator:
    """The words of sweeps in the language of a plan."""
    return Translator(language, _CHINESE)
