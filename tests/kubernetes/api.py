"""Speaks with a Kubernetes API server, as far as the tests need it."""

import json
import ssl
import urllib.error
import urllib.request


class ApiError(Exception):
    """The answer of the server to a call that it refused."""

    def __init__(self, code, body):
        super().__init__(f"{code}: {body}")
        self.code = code


class Api:
    """Calls one API server with a token."""

    def __init__(self, url, token):
        self.url = url
        self.token = token
        self.context = ssl.create_default_context()
        # The server of the test makes its certificate when it starts, and listens on loopback alone.
        self.context.check_hostname = False
        self.context.verify_mode = ssl.CERT_NONE

    def call(self, method, path, body=None, kind="application/json"):
        request = urllib.request.Request(self.url + path, method=method)
        request.add_header("Authorization", f"Bearer {self.token}")
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            request.add_header("Content-Type", kind)
        try:
            with urllib.request.urlopen(request, data, timeout=20, context=self.context) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise ApiError(error.code, error.read().decode(errors="replace")[:500]) from None

    def get(self, path):
        return self.call("GET", path)

    def find(self, path):
        """Returns the object, or None if there is none."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def items(self, path):
        return self.get(path)["items"]

    def create(self, path, body):
        return self.call("POST", path, body)

    def patch(self, path, body, kind="application/merge-patch+json"):
        return self.call("PATCH", path, body, kind)

    def delete(self, path, body=None):
        return self.call("DELETE", path, body or {})
