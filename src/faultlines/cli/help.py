"""What `--help` looks like: options under headings, then examples. Plain text, so that it reads the same in a pipe."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from typer.core import TyperCommand

from faultlines.errors import InputError

LAST = "Other"


class Command(TyperCommand):
    """A command whose help lists its options under the headings they were declared with; no option is overruled."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse an option that takes one value and was given several: the first would be lost without a word."""
        asked = self.make_parser(ctx).parse_args(args=list(args))[2]
        for parameter, count in Counter(asked).items():
            is_option = parameter.param_type_name == "option"
            if count > 1 and is_option and not parameter.multiple and not getattr(parameter, "is_flag", False):
                problem = f"is given {count} times, and takes one value"
                raise InputError(parameter.opts[0], problem, "Leave all but one of them out.")
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options, heading by heading, in the order of the first option of each."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                record = (record[0].partition(" <")[0], record[1])  # no types behind the names of arguments
                panels.setdefault(getattr(parameter, "rich_help_panel", None) or LAST, []).append(record)
        for name in sorted(panels, key=lambda name: name == LAST):
            with formatter.section(name):
                formatter.write_dl(panels[name])


def epilog(examples: Sequence[str], *notes: str) -> str:
    """Examples and notes to stand below the options; lines are kept as they are."""
    shown = ["\b\nExamples:\n" + "\n".join(f"  {example}" for example in examples)]
    return "\n\n".join([*shown, *notes])


EXIT_CODES = """\b
Exit codes:
  0    done; with --fail-on-split: all groups were compared, none differ;
       with --certify: all groups are within the gap;
       with --fail-unless-confirmed: clusters are confirmed
  1    --fail-on-split: clusters differ; --certify: some group does by more;
       --fail-unless-confirmed: clusters are not confirmed
  2    something given cannot be used, or there is not enough memory
  3    a gate cannot tell: groups were left out, or data are too few
  70   a defect of faultlines; FAULTLINES_TRACEBACK=1 shows where
  130  interrupted"""
