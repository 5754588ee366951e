# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Asks a router by OpenAI's own client: ``python ask_by_openai.py URL TIMES``.

It prints, as JSON, what a user sees of a refusal and of a stream that breaks off.
"""

from __future__ import annotations

import json
import sys

import openai


def main() -> None:
    client = openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=int(sys.argv[2]))
    seen: dict[str, object] = {"tokens": 0}
    try:
        stream = client.completions.create(model="m", prompt="p", max_tokens=3, stream=True)
        for _ in stream:
            seen["tokens"] = int(str(seen["tokens"])) + 1
    except openai.APIError as error:
        seen |= {
            "shown": str(error),
            "kind": type(error).__name__,
            "type": error.type,
            "code": error.code,
            "param": error.param,
        }
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
