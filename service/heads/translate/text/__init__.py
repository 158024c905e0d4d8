"""Text in, segments for the model out, and back again with nothing lost.

`markup.split_document` cuts a text into a `Plan`; `detect.Detector` names its language.
Nothing here knows HTTP, the engine or a model: the caller passes a token counter and gets strings.
"""

from service.heads.translate.text.plan import Plan, Segment

__all__ = ["Plan", "Segment"]
