"""What int8 weights cost bAbI models: accuracy on the test questions before and after.

The checkpoints are those of `rotcell-lab train babi --packed --checkpoint FILE`.
"""

import argparse
from pathlib import Path

import rotcell
from rotcell.lab.tasks.babi.data.source import Source
from rotcell.lab.tasks.babi.evaluate import Answerer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoints", nargs="+", type=Path, metavar="FILE", help="trained models")
    parser.add_argument("--data", required=True, help="the data that they were trained on")
    options = parser.parse_args()
    source = Source.at(options.data)
    lost = []
    for path in options.checkpoints:
        answerer = Answerer.load(path)
        task = answerer.settings.task
        questions = source.load(task).test
        before = answerer.evaluate(questions)
        answerer._model = rotcell.quantize_dynamic(answerer._model)
        after = answerer.evaluate(questions)
        changed = sum(
            a.given != b.given for a, b in zip(before.answers, after.answers, strict=True)
        )
        lost.append(100 * (before.accuracy - after.accuracy))
        print(
            f"task {task}: {100 * before.accuracy:.1f} %, int8 {100 * after.accuracy:.1f} %, "
            f"{changed} of {len(questions)} answers differ"
        )
    print(f"lost in the mean over {len(lost)}: {sum(lost) / len(lost):.2f} points")


if __name__ == "__main__":
    main()
