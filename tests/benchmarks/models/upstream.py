"""An upstream that paces its chunks and stamps each with the time it was sent. Its one argument is a port.

The model's name sets the pace: `paced-<milliseconds>-<chunks>`. The stamp is `time.perf_counter()`, which all
processes of a machine share, so that a reader knows each chunk's delay. Whole replies take the same time.
"""

import asyncio
import json
import sys
import time

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
STAMP = b"at %.6f"


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Respond to the requests of one connection."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            _, _, rest = head.lower().partition(b"content-length:")
            body = json.loads(await reader.readexactly(int(rest.split(b"\r\n")[0])))
            reply = _stream if body.get("stream") else _whole
            await reply(writer, str(body["model"]))
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def _whole(writer: asyncio.StreamWriter, model: str) -> None:
    _, milliseconds, chunks = model.split("-")
    await asyncio.sleep(int(milliseconds) / 1000 * int(chunks))
    message = {"role": "assistant", "content": "token " * int(chunks)}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    document = {"id": "chatcmpl-paced", "object": "chat.completion", "created": 1, "model": "paced"}
    content = json.dumps({**document, "choices": [choice], "usage": _usage(int(chunks))}).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    writer.write(head.encode() + content)
    await writer.drain()


async def _stream(writer: asyncio.StreamWriter, model: str) -> None:
    _, milliseconds, chunks = model.split("-")
    writer.write(HEAD + _chunk({"role": "assistant", "content": ""}))
    due_at = time.perf_counter()
    for _ in range(int(chunks)):
        due_at += int(milliseconds) / 1000
        await asyncio.sleep(due_at - time.perf_counter())
        writer.write(_chunk({"content": (STAMP % time.perf_counter()).decode()}))
    writer.write(_chunk({}, finish="stop") + _event({"choices": [], "usage": _usage(int(chunks))}))
    writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
    await writer.drain()


def _usage(chunks: int) -> dict[str, int]:
    return {"prompt_tokens": 10, "completion_tokens": chunks, "total_tokens": 10 + chunks}


def _chunk(delta: dict[str, str], finish: str | None = None) -> bytes:
    return _event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def _event(values: dict[str, object]) -> bytes:
    base = {"id": "chatcmpl-paced", "object": "chat.completion.chunk", "created": 1, "model": "paced"}
    content = b"data: " + json.dumps(base | values).encode() + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(content), content)


async def _serve() -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", int(sys.argv[1]), backlog=512)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve())
