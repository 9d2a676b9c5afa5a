"""The protocol, without I/O: records in, bytes out, and back.

From the bottom: `messages` (what travels) and `limits`; `fields`, `operations`, `items` and
`control` (each record as plain values, each field checked); `codec` (plain values and bytes);
`framing` (bytes cut into messages); `records` (errors); `state`, `numbering` and `session` (who may
say what, and in which order).
"""
