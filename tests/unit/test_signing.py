from __future__ import annotations

import pytest

from common.units import Secret
from common.webhook_parts import signing_key
from dispatcher.destinations.signing import signature
from ops.signature import fault

BODY = b'{"event_type":"ping","data":{"success":true}}'
AT = 1_731_705_121
# The vector that the authors of Standard Webhooks publish.
SECRET = "whsec_plJ3nmyCDGBKInavdOK15jsl"
ID = "msg_loFOjxBNrRLzqYUf"
SIGNED = "v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0="


def test_the_published_vector() -> None:
    assert signature([signing_key(Secret(SECRET))], ID, AT, BODY) == SIGNED


def test_each_secret_signs_in_their_order() -> None:
    keys = [signing_key(Secret("new and plain")), signing_key(Secret(SECRET))]
    first, second = signature(keys, ID, AT, BODY).split(" ")
    assert first == signature(keys[:1], ID, AT, BODY)
    assert second == SIGNED


def test_our_receiver_accepts_it_with_either_secret() -> None:
    other = "whsec_" + "A" * 32
    signed = signature([signing_key(Secret(other)), signing_key(Secret(SECRET))], ID, AT, BODY)
    headers = {"webhook-id": ID, "webhook-timestamp": str(AT), "webhook-signature": signed}
    assert fault(headers, BODY, [SECRET], AT) is None
    assert fault(headers, BODY, [other], AT) is None
    assert fault(headers, BODY + b" ", [other], AT) is not None


def test_a_plain_secret_is_its_utf_8_bytes() -> None:
    assert signing_key(Secret("schlüssel")) == "schlüssel".encode()


NOT_BASE64 = "what follows whsec_ is not base64"
BAD = {
    "": "is empty",
    "whsec_": "nothing follows whsec_",
    "whsec_not base64!": NOT_BASE64,
    "whsec_abc": NOT_BASE64,
}


@pytest.mark.parametrize(("secret", "says"), BAD.items())
def test_a_bad_secret_is_named_without_being_shown(secret: str, says: str) -> None:
    with pytest.raises(ValueError, match=r"whsec_|empty") as raised:
        signing_key(Secret(secret))
    assert str(raised.value) == says
