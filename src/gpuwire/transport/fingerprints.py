"""The fingerprint of a public key."""

from __future__ import annotations

import base64
import hashlib

from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

FINGERPRINT_LENGTH = 43


def fingerprint_of(key: PublicKeyTypes) -> str:
    """SHA-256 of the SubjectPublicKeyInfo (RFC 7469 section 2.4), base64url without padding."""
    info = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.urlsafe_b64encode(hashlib.sha256(info).digest()).rstrip(b"=").decode()


def is_fingerprint(text: str) -> bool:
    """Whether `text` has the form of a fingerprint."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return len(text) == FINGERPRINT_LENGTH and all(letter in alphabet for letter in text)
