"""Which rules a command runs: ``--gate`` and ``--rule``, else what the settings select and ignore."""

from __future__ import annotations

import argparse

from kcontract.errors import UsageError
from kcontract.passes.base import selected
from kcontract.settings import Settings


def rules_asked_for(args: argparse.Namespace) -> list[str]:
    """Slugs of the rules to run. Raises ``UsageError`` for an unknown name, and where no static rule is left."""
    asked = [*args.gate, *args.rule]
    settings = Settings.load()
    chosen = selected(asked or settings.select, () if asked else settings.ignore)
    if not chosen:
        raise UsageError(f"no static rule belongs to {', '.join(asked or settings.select)}: it needs a run")
    return [rule.slug for rule in chosen]
