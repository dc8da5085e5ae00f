"""A process that uploads one blob and reports its cost, or stops half-way to be killed there.

python -m tests.contracts.lone_upload <url> <endpoint or -> <size> complete|hang
"""

import json
import resource
import sys
import time

from shared.files.blobs import S3Access, open_blob_store
from shared.ids import new_id

PIECE = b"q" * (256 * 1024)


def main(url: str, endpoint_url: str, size: str, ending: str) -> None:
    """Upload `size` bytes. Print one line of JSON."""
    size_bytes = int(size)
    access = S3Access(
        endpoint_url=endpoint_url, region="us-east-1", access_key_id="test", secret_access_key="test"
    )
    store = open_blob_store(url, s3=access)
    version_id = new_id()
    upload_id = store.begin(version_id)
    receiver = store.receive(version_id, size_bytes=size_bytes, upload_id=upload_id)
    for start in range(0, size_bytes // (2 if ending == "hang" else 1), len(PIECE)):
        receiver.write(PIECE[: size_bytes - start])
    if ending == "complete":
        receiver.seal()
        receiver.release()
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        json.dumps({"version_id": str(version_id), "upload_id": upload_id, "peak_kib": peak_kib}), flush=True
    )
    while ending == "hang":
        time.sleep(60)


if __name__ == "__main__":
    main(*sys.argv[1:])
