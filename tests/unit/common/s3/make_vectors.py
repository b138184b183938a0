#!/usr/bin/python3
"""Signs requests with botocore, and prints them with their signatures: tests/data/s3/signatures.json.

It needs Debian's python3-botocore:  /usr/bin/python3 tests/unit/common/s3/make_vectors.py > tests/data/s3/signatures.json
"""
import datetime
import hashlib
import json

import botocore.auth
import botocore.awsrequest
import botocore.credentials

TIME = datetime.datetime(2026, 11, 28, 9, 8, 7)
KEYS = ["plain", "a folder/with spaces", "blobs/sha256/" + "ab" * 32, "plus+and~tilde", "a//b/./c/../d", "ünï/cödé",
        "percent%41", "quotes'\"()!*", "colon:at@equals=comma,", "ends/with/slash/"]
QUERIES = [[], [["list-type", "2"], ["prefix", "a b/ü"], ["max-keys", "10"]], [["uploads", ""]],
           [["partNumber", "12"], ["uploadId", "x+/=~*"]], [["b", "2"], ["a", "1"], ["a-b", "3"], ["A", "4"]]]
HEADERS = [{}, {"if-none-match": "*"}, {"if-match": '"0123"', "range": "bytes=5-9"}, {"x-amz-meta-text": "  two   spaces  "}]


class FixedTime(datetime.datetime):
    @classmethod
    def utcnow(cls):
        return TIME


def vector(method, key, query, headers, body, token):
    from urllib.parse import quote
    host = "127.0.0.1:8280"
    path = "/bucket/" + quote(key, safe="/~")
    text = "&".join(f"{quote(n, safe='~')}={quote(v, safe='~')}" for n, v in sorted(query))
    request = botocore.awsrequest.AWSRequest(method=method, url=f"http://{host}{path}" + (f"?{text}" if text else ""),
                                             headers=dict(headers), data=body)
    credentials = botocore.credentials.Credentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", token)
    signer = botocore.auth.S3SigV4Auth(credentials, "s3", "eu-central-1")
    request.context["payload_signing_enabled"] = True
    # Over plain HTTP and with this setting, botocore signs the hash of the body.
    signer.add_auth(request)
    signed = {name.lower(): value for name, value in request.headers.items() if name != "Authorization"}
    signed["host"] = host
    signed["x-amz-content-sha256"] = hashlib.sha256(body).hexdigest()
    return {"method": method, "key": key, "query": query, "headers": signed, "body": body.decode(), "token": token,
            "authorization": request.headers["Authorization"]}


def main():
    botocore.auth.datetime.datetime = FixedTime
    vectors = []
    for i, key in enumerate(KEYS):
        for j, query in enumerate(QUERIES):
            headers = HEADERS[(i + j) % len(HEADERS)]
            method, body = [("GET", b""), ("PUT", b"some bytes"), ("POST", b"<x/>"), ("DELETE", b""), ("HEAD", b"")][(i + j) % 5]
            vectors.append(vector(method, key, query, headers, body, "token/with+signs=" if (i + j) % 3 == 0 else None))
    print(json.dumps({"time": "20261128T090807Z", "region": "eu-central-1", "vectors": vectors}, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
