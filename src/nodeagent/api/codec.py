"""Reading and writing API objects as JSON and as plain Python values.

This is the fast and lenient door, for objects that an API server or nodeagent itself wrote:
unknown fields are dropped, and of a repeated key the last one counts. Manifests that people
write go through the strict decoder.
"""

from typing import Any, TypeVar

import msgspec

from nodeagent.api.pod import Pod
from nodeagent.api.quantity import Quantity

T = TypeVar("T")


def dec_hook(wanted: type[Any], value: Any) -> Any:
    """Build the types that msgspec does not know: quantities."""
    if wanted is Quantity:
        return Quantity(value)
    msg = f"cannot read {wanted.__name__}"
    raise NotImplementedError(msg)


def enc_hook(value: Any) -> Any:
    """Write the types that msgspec does not know: quantities, in canonical form."""
    if isinstance(value, Quantity):
        return str(value)
    msg = f"cannot write {type(value).__name__}"
    raise NotImplementedError(msg)


_encoder = msgspec.json.Encoder(enc_hook=enc_hook)
_pod_decoder = msgspec.json.Decoder(Pod, dec_hook=dec_hook)


def decode(wanted: type[T], data: bytes | str) -> T:
    """Read an object from JSON.

    Args:
        wanted: The API type.
        data: One JSON object. ``null`` for a field counts as leaving it out.

    Raises:
        msgspec.DecodeError: The text is not JSON, or (as ``msgspec.ValidationError``) a value
            has the wrong type; the message names the path.
    """
    try:
        return msgspec.json.decode(data, type=wanted, dec_hook=dec_hook)
    except msgspec.ValidationError:
        return convert(msgspec.json.decode(data), wanted)


def decode_pod(data: bytes | str) -> Pod:
    """Read a pod from JSON, as ``decode`` does."""
    try:
        return _pod_decoder.decode(data)
    except msgspec.ValidationError:
        # Rare: a null where our type has a zero value. Errors of other kinds come out again.
        return convert(msgspec.json.decode(data), Pod)


def convert(value: Any, wanted: type[T]) -> T:
    """Build an object from dicts, lists and scalars, such as a parsed document.

    Raises:
        msgspec.ValidationError: A value has the wrong type; the message names the path.
    """
    return msgspec.convert(without_nulls(value), type=wanted, dec_hook=dec_hook)


def encode(value: Any) -> bytes:
    """Write an object as JSON; fields that hold their zero value are left out."""
    return _encoder.encode(value)


def to_builtins(value: Any) -> Any:
    """Turn an object into dicts, lists and JSON scalars, as they would come back from JSON."""
    # msgspec's own function leaves tuples as they are.
    return msgspec.json.decode(_encoder.encode(value))


def without_nulls(value: Any) -> Any:
    """Drop the fields that are ``null``, which is how JSON may say "not given"."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value
