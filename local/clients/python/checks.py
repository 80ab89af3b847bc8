"""The clients of PyPI: openai, boto3, and LangChain and LangGraph on top of them, with base URL, key and authority by environment.

Each check prints its result as one line of JSON.
"""

import json
import os
import time
import traceback
import urllib.request
from importlib.metadata import version

import boto3
import botocore.config
import botocore.exceptions
import openai
from langchain_aws import ChatBedrockConverse
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from langgraph.prebuilt import create_react_agent
from pydantic import BaseModel

PROVIDER = os.environ["PROVIDER_URL"]
OPENAI = f"openai {version('openai')} (PyPI)"
BOTO3 = f"boto3 {version('boto3')} (PyPI)"
LC_OPENAI = f"langchain-openai {version('langchain-openai')} (PyPI)"
LC_AWS = f"langchain-aws {version('langchain-aws')} (PyPI)"
LANGGRAPH = f"langgraph {version('langgraph')} (PyPI)"


def replies(*given):
    """Says what the provider answers next, and counts anew."""
    urllib.request.urlopen(urllib.request.Request(PROVIDER + "/replies", data=json.dumps(given).encode(), method="POST")).read()


def calls():
    return json.load(urllib.request.urlopen(PROVIDER + "/calls"))


def want(what, got, expected):
    if got != expected:
        raise AssertionError(f"{what}: got {got!r:.300}, want {expected!r:.300}")


def failure(kind, call):
    try:
        call()
    except kind as e:
        return e
    raise AssertionError("no error came")


def check(client, name):
    def run(f):
        if not name.startswith(os.environ.get("CHECKS", "")):  # those of one scenario
            return f
        began, ok = time.time(), True
        try:
            replies()
            note = f() or ""
        except Exception:  # a check's failure is what is told
            ok, note = False, traceback.format_exc()
        print(json.dumps({"client": client, "check": name, "ok": ok, "note": f"{note} ({(time.time() - began) * 1000:.0f} ms)"}), flush=True)
        return f

    return run


WEATHER = {"name": "weather", "arguments": '{"city":"Ulm"}'}
ai = openai.OpenAI()


def says(text):
    return {"model": "chat-a", "messages": [{"role": "user", "content": text}]}


@check(OPENAI, "chat")
def _():
    raw = ai.chat.completions.with_raw_response.create(**says("café ☕"))
    want("content", raw.parse().choices[0].message.content, "[fake-chat-1] café ☕")
    want("target", raw.headers["x-llmq-target"], "main")


@check(OPENAI, "stream with usage")
def _():
    text, usage = "", None
    for c in ai.chat.completions.create(**says("one two three"), stream=True, stream_options={"include_usage": True}):
        text += (c.choices[0].delta.content or "") if c.choices else ""
        usage = c.usage or usage
    want("text", text, "[fake-chat-1] one two three")
    want("usage", usage.total_tokens > 0, True)


@check(OPENAI, "tools")
def _():
    replies({"tool_calls": [WEATHER]})
    got = ai.chat.completions.create(**says("Weather?"), tools=[{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}])
    want("arguments", json.loads(got.choices[0].message.tool_calls[0].function.arguments), {"city": "Ulm"})


class Place(BaseModel):
    city: str
    degrees: int


@check(OPENAI, "JSON schema")
def _():
    replies({"text": '{"city":"Ulm","degrees":7}'})
    got = ai.chat.completions.parse(**says("As JSON"), response_format=Place)
    want("parsed", got.choices[0].message.parsed, Place(city="Ulm", degrees=7))


@check(OPENAI, "body of 4 MiB")
def _():
    messages = [{"role": "system", "content": "x" * (4 * 1024 * 1024 - 200)}, {"role": "user", "content": "short"}]
    want("content", ai.chat.completions.create(model="chat-a", messages=messages).choices[0].message.content, "[fake-chat-1] short")
    messages[0]["content"] += "x" * 300
    e = failure(openai.APIStatusError, lambda: ai.chat.completions.create(model="chat-a", messages=messages))
    want("more", (e.status_code, calls()), (413, 1))


@check(OPENAI, "embeddings, floats and base64")
def _():
    plain = ai.embeddings.create(model="emb-a", input=["one", "two"])  # base64 on the wire
    floats = ai.embeddings.create(model="emb-a", input=["one", "two"], encoding_format="float")
    near = all(abs(a - b) < 1e-6 for a, b in zip(plain.data[1].embedding, floats.data[1].embedding))
    want("the same numbers", (near, len(plain.data[1].embedding)), (True, len(floats.data[1].embedding)))


for _name, _reply, _kind, _code, _seen in [
    ("provider refuses", {"status": 400}, openai.BadRequestError, "provider_rejected", 1),
    ("provider: no access", {"status": 401}, openai.InternalServerError, "provider_auth_failed", 1),
    ("provider: no money", {"code": "insufficient_quota"}, openai.RateLimitError, "insufficient_quota", 1),
    ("provider fails", {"status": 500, "times": 20}, openai.InternalServerError, "provider_error", 3),
]:

    @check(OPENAI, f"error: {_name}")
    def _():
        replies(_reply)
        e = failure(_kind, lambda: ai.chat.completions.create(**says(_name)))
        want("error", (e.code, e.response.headers["x-should-retry"], calls()), (_code, "false", _seen))


@check(OPENAI, "error: unknown model, wrong key")
def _():
    e = failure(openai.NotFoundError, lambda: ai.chat.completions.create(model="chat-b", messages=[]))
    want("code", e.code, "model_not_found")
    failure(openai.AuthenticationError, lambda: openai.OpenAI(api_key="llmq_local_none").chat.completions.create(**says("x")))


@check(OPENAI, "time-out, and taken up again")
def _():
    replies({"delay_ms": 2500, "text": "late"})
    key = {"Idempotency-Key": f"python-{time.time()}"}
    failure(openai.APITimeoutError, lambda: ai.with_options(timeout=1, max_retries=0).chat.completions.create(**says("slow"), extra_headers=key))
    got = ai.chat.completions.create(**says("slow"), extra_headers=key)
    want("reply and calls", (got.choices[0].message.content, calls()), ("late", 1))


@check(OPENAI, "own retries: a throttle")
def _():
    replies({"status": 429, "headers": {"retry-after": "3"}, "times": 20})
    began = time.time()
    e = failure(openai.RateLimitError, lambda: ai.chat.completions.create(**says("throttled"), extra_headers={"X-LLMQ-Timeout-Secs": "2"}))
    want("error", (e.code, calls()), ("rate_limited", 3))
    return f"sent 3 times in {time.time() - began:.0f} s"


aws = boto3.client("bedrock-runtime")


def asks(text, model="conv-a"):
    return {"modelId": model, "messages": [{"role": "user", "content": [{"text": text}]}]}


@check(BOTO3, "converse")
def _():
    for model in ["conv-a", "conv-a@main", "fake.converse-v1:0"]:
        got = aws.converse(**asks("café ☕", model))
        want("text", got["output"]["message"]["content"][0]["text"], "[fake.converse-v1:0] café ☕")
    want("target", got["ResponseMetadata"]["HTTPHeaders"]["x-llmq-target"], "main")


@check(BOTO3, "stream with usage")
def _():
    text, usage = "", None
    for event in aws.converse_stream(**asks("one two three"))["stream"]:
        text += event.get("contentBlockDelta", {}).get("delta", {}).get("text", "")
        usage = event.get("metadata", {}).get("usage", usage)
    want("stream", (text, usage["totalTokens"] > 0), ("[fake.converse-v1:0] one two three", True))


@check(BOTO3, "invoke, and its stream, without a content type")
def _():
    asked = {"modelId": "conv-a", "body": json.dumps({"anthropic_version": "bedrock-2023-05-31", "max_tokens": 50, "messages": [{"role": "user", "content": "hello"}]})}
    want("text", json.loads(aws.invoke_model(**asked)["body"].read())["content"][0]["text"], "[fake.converse-v1:0] hello")
    text = ""
    for event in aws.invoke_model_with_response_stream(**asked)["body"]:
        text += json.loads(event["chunk"]["bytes"]).get("delta", {}).get("text", "")
    want("streamed", text, "[fake.converse-v1:0] hello")


@check(BOTO3, "tools")
def _():
    replies({"tool_calls": [WEATHER]})
    got = aws.converse(**asks("Weather?"), toolConfig={"tools": [{"toolSpec": {"name": "weather", "inputSchema": {"json": {"type": "object"}}}}]})
    want("use", (got["stopReason"], got["output"]["message"]["content"][0]["toolUse"]["input"]), ("tool_use", {"city": "Ulm"}))


@check(BOTO3, "body of 4 MiB")
def _():
    got = aws.converse(**asks("short"), system=[{"text": "x" * (4 * 1024 * 1024 - 200)}])
    want("text", got["output"]["message"]["content"][0]["text"], "[fake.converse-v1:0] short")


@check(BOTO3, "errors are typed, and sent once")
def _():
    for given, name, seen in [
        ([{"code": "ValidationException"}], "ValidationException", 1),
        ([{"code": "AccessDeniedException"}], "ModelErrorException", 1),
        ([{"status": 500, "times": 20}], "ModelErrorException", 3),
    ]:
        replies(*given)
        e = failure(botocore.exceptions.ClientError, lambda: aws.converse(**asks("x")))
        want("error", (e.response["Error"]["Code"], e.response["ResponseMetadata"]["RetryAttempts"], calls()), (name, 0, seen))
    e = failure(aws.exceptions.ResourceNotFoundException, lambda: aws.converse(**asks("x", "conv-b")))


@check(BOTO3, "own retries: a throttle")
def _():
    attempts = []
    for mode in ["legacy", "standard"]:
        replies({"status": 429, "headers": {"retry-after": "3"}, "times": 50})
        c = boto3.client("bedrock-runtime", config=botocore.config.Config(retries={"mode": mode}))
        c.meta.events.register("before-send.bedrock-runtime.Converse", lambda request, **_: request.headers.__setitem__("X-LLMQ-Timeout-Secs", "2"))
        failure(botocore.exceptions.ClientError, lambda: c.converse(**asks("throttled")))
        attempts.append(f"{mode} {calls()}")
    return "sent: " + ", ".join(attempts)


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"7 degrees in {city}"


@check(LC_OPENAI, "S04: invoke, batch, stream, embed")
def _():
    llm = ChatOpenAI(model="chat-a", stream_usage=True)
    got = llm.invoke("hello")
    want("content", (got.content, got.usage_metadata["total_tokens"] > 0), ("[fake-chat-1] hello", True))
    want("batch", [m.content for m in llm.batch([f"number {i}" for i in range(10)])], [f"[fake-chat-1] number {i}" for i in range(10)])
    want("streamed", "".join(c.content for c in llm.stream("one two")), "[fake-chat-1] one two")
    want("embeddings", len(OpenAIEmbeddings(model="emb-a", check_embedding_ctx_length=False).embed_documents(["a", "b"])), 2)


for _client, _llm in [(LC_OPENAI, lambda: ChatOpenAI(model="chat-a")), (LC_AWS, lambda: ChatBedrockConverse(model="conv-a", provider="anthropic"))]:

    @check(_client, "S04: bind_tools")
    def _():
        replies({"tool_calls": [WEATHER]})
        got = _llm().bind_tools([weather]).invoke("Weather in Ulm?")
        want("tool call", [(t["name"], t["args"]) for t in got.tool_calls], [("weather", {"city": "Ulm"})])

    @check(_client, "S04: structured output")
    def _():
        replies({"tool_calls": [{"name": "Place", "arguments": '{"city":"Ulm","degrees":7}'}]} if _client == LC_AWS else {"text": '{"city":"Ulm","degrees":7}'})
        want("parsed", _llm().with_structured_output(Place).invoke("As JSON"), Place(city="Ulm", degrees=7))

    @check(LANGGRAPH, f"S04: tool loop on {_client.split()[0]}")
    def _():
        replies({"tool_calls": [WEATHER]})
        end = create_react_agent(_llm(), [weather]).invoke({"messages": [("user", "Weather in Ulm?")]})
        want("messages", [m.type for m in end["messages"]], ["human", "ai", "tool", "ai"])
        want("calls", calls(), 2)
        return end["messages"][-1].content if isinstance(end["messages"][-1].content, str) else end["messages"][-1].content[0]["text"]


@check(LC_AWS, "invoke and stream")
def _():
    llm = ChatBedrockConverse(model="conv-a", provider="anthropic")
    want("content", llm.invoke("hello").content, "[fake.converse-v1:0] hello")
    text = ""
    for chunk in llm.stream("one two"):
        text += chunk.content if isinstance(chunk.content, str) else "".join(b.get("text", "") for b in chunk.content)
    want("streamed", text, "[fake.converse-v1:0] one two")
