"""An ensemble: a checked graph of models, whose tensors flow from step to step without leaving the process."""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from serving.answer import Answer
from serving.completion import complete
from serving.config import ENSEMBLE
from serving.digest import execution_digest
from serving.errors import ExecutionError, ModelLoadError, ServingError
from serving.model import Served, Services
from serving.repository import ModelFolder, files_sha256
from serving.request import Call
from serving.tensors import VARIABLE, Tensors, TensorSpec


@dataclass(frozen=True, slots=True)
class Step:
    """A step: its model, and which tensor of the ensemble each of its inputs and outputs is."""

    number: int
    model: Served
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]

    def __str__(self) -> str:
        return f"step {self.number} ({self.model.name})"


class Ensemble(Served):
    """A model made of other models; each step goes through its own model's batcher, independent steps side by side."""

    def __init__(
        self,
        folder: ModelFolder,
        version: int,
        find: Callable[[str, int | None], Served],
        services: Services,
    ) -> None:
        """Checks the graph against its models, which must be loaded.

        Args:
            folder: The ensemble in its repository.
            version: Its version.
            find: Gives the loaded model of a name and version (None: the highest).
            services: What the models of the server share.

        Raises:
            ModelLoadError: A step's model, input or output is unknown, types or dims differ, a tensor has no source or
                two, or the steps run in a circle; the message names step and tensor.
        """
        config = complete(folder.message, ENSEMBLE, None)
        where = f"ensemble {folder.name!r}"
        steps = []
        for number, step in enumerate(config.message.ensemble_scheduling.step, start=1):
            try:
                model = find(step.model_name, step.model_version if step.model_version > 0 else None)
            except ServingError as error:
                raise ModelLoadError(f"{where}: step {number}: {error.message}", field="ensemble_scheduling") from error
            steps.append(Step(number, model, dict(step.input_map), dict(step.output_map)))
        _check(where, config.inputs, config.outputs, steps, config.is_batched)
        digest = execution_digest(
            config, files_sha256(folder.version_path(version)), ENSEMBLE, [], [step.model.digest for step in steps]
        )
        super().__init__(folder.name, version, config, digest, services)
        self._steps = steps
        self._changed = threading.Condition()
        self._num_running = 0
        self._uses = Counter(tensor for step in steps for tensor in set(step.inputs.values()))
        self._uses.update(spec.name for spec in config.outputs)

    def start(self) -> None:
        """Nothing of its own runs."""

    def close(self) -> None:
        """Waits for the calls in flight; they need its models, which must be closed after it."""
        with self._changed:
            self._changed.wait_for(lambda: self._num_running == 0)

    def _begin(self, call: Call) -> Answer:
        answer = Answer(self.label)
        threading.Thread(target=self._drive, args=(call, answer), name=f"serving-{self.label}", daemon=True).start()
        return answer

    def _begin_here(self, call: Call) -> Answer:
        answer = Answer(self.label)
        self._drive(call, answer)
        return answer

    def _drive(self, call: Call, answer: Answer) -> None:
        with self._changed:
            self._num_running += 1
        try:
            self._run_steps(call, answer)
        finally:
            with self._changed:
                self._num_running -= 1
                self._changed.notify_all()

    def _run_steps(self, call: Call, answer: Answer) -> None:
        """Runs the graph: submits each step once its inputs are there, until outputs or an error settle `answer`."""
        events: queue.SimpleQueue[tuple[Step, Answer] | None] = queue.SimpleQueue()
        answer.add_done_callback(lambda _: events.put(None))
        tensors: Tensors = dict(call.inputs)
        uses = Counter(self._uses)
        waiting = list(self._steps)
        running: dict[int, Answer] = {}
        try:
            while True:
                for step in [step for step in waiting if all(name in tensors for name in step.inputs.values())]:
                    waiting.remove(step)
                    running[step.number] = _submit(step, tensors, call)
                    running[step.number].add_done_callback(partial(_report, events, step))
                    for name in set(step.inputs.values()):
                        uses[name] -= 1
                        if not uses[name]:
                            del tensors[name]
                if not running:
                    break
                event = events.get()
                if event is None:
                    return
                step, done = event
                del running[step.number]
                outputs = done.result()
                tensors.update({name: outputs[output] for output, name in step.outputs.items() if uses[name]})
        except ServingError as error:
            message = f"{self.label}: {step}: {error.message}"
            answer.settle(error=type(error)(message, field=error.field))
        except Exception as error:
            answer.settle(error=ExecutionError(f"{self.label}: {type(error).__name__}: {error}"))
        else:
            answer.settle(outputs={name: tensors[name] for name in call.outputs})
        finally:
            for other in running.values():
                other.cancel()


def _report(events: queue.SimpleQueue[tuple[Step, Answer] | None], step: Step, done: Answer) -> None:
    events.put((step, done))


def _submit(step: Step, tensors: Tensors, call: Call) -> Answer:
    inputs = {spec.name: tensors[step.inputs[spec.name]] for spec in step.model.config.inputs}
    wanted = tuple(spec.name for spec in step.model.config.outputs if spec.name in step.outputs)
    return step.model.submit(Call(inputs, call.rows, wanted, deadline_ns=call.deadline_ns, parameters=call.parameters))


def _check(
    where: str, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...], steps: list[Step], batched: bool
) -> None:
    """Raises ModelLoadError unless the steps are a graph from `inputs` to `outputs` whose tensors fit."""
    if not steps:
        raise ModelLoadError(f"{where}: ensemble_scheduling has no step", field="ensemble_scheduling")
    sources = {spec.name: (spec, "the ensemble's input") for spec in inputs}
    for step in steps:
        config = step.model.config
        if config.is_batched != batched:
            raise ModelLoadError(
                f"{where}: {step}: max_batch_size must be 0 for the ensemble and all its steps, or for none of them",
                field="max_batch_size",
            )
        for kind, specs, mapping in (("input", config.inputs, step.inputs), ("output", config.outputs, step.outputs)):
            known = [spec.name for spec in specs]
            for name in mapping:
                if name not in known:
                    raise ModelLoadError(
                        f"{where}: {step}: no {kind} {name!r}; the model has {', '.join(known)}", field=name
                    )
        for spec in config.inputs:
            if spec.name not in step.inputs:
                raise ModelLoadError(
                    f"{where}: {step}: input {spec.name!r} is missing in its input_map", field=spec.name
                )
        for spec in config.outputs:
            tensor = step.outputs.get(spec.name)
            if tensor in sources:
                raise ModelLoadError(
                    f"{where}: {step}: tensor {tensor!r} already comes from {sources[tensor][1]}", field=tensor
                )
            if tensor is not None:
                sources[tensor] = (spec, str(step))
    for step in steps:
        for spec in step.model.config.inputs:
            _check_flow(f"{where}: {step}: input {spec.name!r}", step.inputs[spec.name], spec, sources)
    for spec in outputs:
        _check_flow(f"{where}: output {spec.name!r}", spec.name, spec, sources)
    _check_order(where, {spec.name for spec in inputs}, steps)


def _check_flow(where: str, tensor: str, spec: TensorSpec, sources: Mapping[str, tuple[TensorSpec, str]]) -> None:
    if tensor not in sources:
        raise ModelLoadError(f"{where}: no input of the ensemble and no step gives the tensor {tensor!r}", field=tensor)
    source, giver = sources[tensor]
    fits = len(source.dims) == len(spec.dims) and all(
        VARIABLE in pair or pair[0] == pair[1] for pair in zip(source.dims, spec.dims, strict=True)
    )
    if source.dtype != spec.dtype or not fits:
        raise ModelLoadError(
            f"{where}: is {spec.dtype.name}{list(spec.dims)}, but the tensor {tensor!r} from {giver} is "
            f"{source.dtype.name}{list(source.dims)}",
            field=tensor,
        )


def _check_order(where: str, ready: set[str], steps: list[Step]) -> None:
    waiting = list(steps)
    while waiting:
        able = [step for step in waiting if ready.issuperset(step.inputs.values())]
        if not able:
            raise ModelLoadError(
                f"{where}: {', '.join(map(str, waiting))} wait for each other's outputs", field="ensemble_scheduling"
            )
        for step in able:
            ready.update(step.outputs.values())
            waiting.remove(step)
