"""An ensemble: a checked graph of models, whose tensors flow from step to step without leaving the process."""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

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
    """A step: its model, and which tensor of the ensemble each of its inputs and outputs is.

    `needs` are the tensors it takes, `feeds` its inputs with theirs in the model's order, `wanted` what is asked.
    """

    number: int
    model: Served
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    needs: frozenset[str]
    feeds: tuple[tuple[str, str], ...]
    wanted: tuple[str, ...]

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
            steps.append(_make_step(number, model, dict(step.input_map), dict(step.output_map)))
        _check(where, config.inputs, config.outputs, steps, config.is_batched)
        files = files_sha256(folder.version_path(version))
        digest = execution_digest(config, files, ENSEMBLE, [], [step.model.digest for step in steps])
        super().__init__(folder, version, config, files, digest, services)
        self._steps = steps
        self._uses = Counter(tensor for step in steps for tensor in set(step.inputs.values()))
        self._uses.update(spec.name for spec in config.outputs)
        self._chain = _chain([spec.name for spec in config.inputs], [spec.name for spec in config.outputs], steps)
        self._does_block = services.cache.has_second

    def start(self) -> None:
        """Nothing of its own runs."""

    def warm_up(self) -> None:
        """Its models are warmed up by themselves.

        Raises:
            ModelLoadError: The configuration asks for more.
        """
        if self.config.message.model_warmup:
            raise ModelLoadError(
                f"{self.label}: model_warmup is not supported for an ensemble; give it to its steps",
                field="model_warmup",
            )

    def _stop(self) -> None:
        """Nothing of its own runs."""

    @property
    def parts(self) -> tuple[Served, ...]:
        """Its steps' models: calls in flight need them, so they must be closed after it."""
        return tuple(step.model for step in self._steps)

    def _begin(self, call: Call) -> Answer:
        run = self._make_run(call)
        if run.events is None:
            run.go_on()
        else:
            threading.Thread(target=run.drive, name=f"serving-{self.label}", daemon=True).start()
        return run.answer

    def _begin_here(self, call: Call) -> Answer:
        if self._chain and call.deadline_ns is None:
            return self._run_chain(call)
        run = self._make_run(call)
        run.drive()
        return run.answer

    def _run_chain(self, call: Call) -> Answer:
        """Does one step after the other in this thread."""
        answer = Answer(self.label)
        tensors = dict(call.inputs)
        for step, spent in self._chain:
            inputs = {name: tensors[tensor] for name, tensor in step.feeds}
            try:
                outputs = step.model.run(Call(inputs, call.rows, step.wanted, parameters=call.parameters)).result()
            except Exception as error:
                answer.settle(error=_step_error(self.label, step, error))
                return answer
            for output, tensor in step.outputs.items():
                tensors[tensor] = outputs[output]
            for tensor in spent:
                del tensors[tensor]
        answer.settle({name: tensors[name] for name in call.outputs})
        return answer

    def _make_run(self, call: Call) -> _Run:
        return _Run(self.label, call, self._steps, self._uses, does_block=self._does_block)


class _Run:
    """A call on its way through the graph: each step is submitted once its inputs are there.

    The thread that settles a step submits the next ones, so that nothing returns to the caller between steps. Where
    submitting may block (rows are looked up in Redis) it must not be an executing thread: then `events` tell a thread
    of the run's own, which `drive` makes of its caller.
    """

    def __init__(
        self,
        label: str,
        call: Call,
        steps: Sequence[Step],
        uses: Mapping[str, int],
        *,
        does_block: bool,
    ) -> None:
        self.answer = Answer(label)
        self.events: queue.SimpleQueue[tuple[Step, Answer] | None] | None = queue.SimpleQueue() if does_block else None
        self._label = label
        self._call = call
        self._lock = threading.Lock()
        self._tensors: Tensors = dict(call.inputs)
        self._uses = dict(uses)
        self._waiting = steps
        # By the step's number; None while it is being submitted.
        self._running: dict[int, Answer | None] = {}
        self._is_over = False
        self.answer.add_done_callback(self._end)

    def drive(self) -> None:
        """Begins, and goes on in this thread until the answer is settled if the run has `events`."""
        self.go_on()
        while self.events is not None and (event := self.events.get()) is not None:
            self._take(*event)

    def go_on(self, done: Step | None = None, outputs: Tensors | None = None) -> None:
        """Takes what a step gave; submits those whose inputs are there; settles the answer when none is left."""
        calls: list[tuple[Step, Call]] = []
        with self._lock:
            if self._is_over:
                return
            tensors, uses = self._tensors, self._uses
            if done is not None and outputs is not None:
                del self._running[done.number]
                for output, name in done.outputs.items():
                    if uses.get(name):
                        tensors[name] = outputs[output]
            for step in self._waiting:
                if tensors.keys() >= step.needs:
                    self._running[step.number] = None
                    calls.append((step, self._call_of(step)))
            if calls:
                self._waiting = [step for step in self._waiting if step.number not in self._running]
                for step, _ in calls:
                    for name in step.needs:
                        uses[name] -= 1
                        if not uses[name]:
                            del tensors[name]
            self._is_over = is_done = not self._running
        if is_done:
            self.answer.settle({name: tensors[name] for name in self._call.outputs})
        for step, call in calls:
            self._submit(step, call)

    def _call_of(self, step: Step) -> Call:
        inputs = {name: self._tensors[tensor] for name, tensor in step.feeds}
        call = self._call
        return Call(inputs, call.rows, step.wanted, deadline_ns=call.deadline_ns, parameters=call.parameters)

    def _submit(self, step: Step, call: Call) -> None:
        try:
            running = step.model.submit(call)
        except Exception as error:
            self._fail(step, error)
            return
        self._running[step.number] = running
        if self._is_over:
            # Its end may have come before it could see this step.
            running.cancel()
        elif self.events is None:
            running.add_done_callback(lambda done: self._take(step, done))
        else:
            events = self.events
            running.add_done_callback(lambda done: events.put((step, done)))

    def _take(self, step: Step, done: Answer) -> None:
        if done.error is not None:
            self._fail(step, done.error)
            return
        try:
            self.go_on(step, done.outputs)
        except Exception as error:
            # An answer that nobody settles would be waited for without end.
            self._fail(step, error)

    def _fail(self, step: Step, error: Exception) -> None:
        self.answer.settle(error=_step_error(self._label, step, error))

    def _end(self, _: Answer) -> None:
        """Nothing more is submitted; steps that still run are given up."""
        with self._lock:
            self._is_over = True
        if self._running:
            for running in list(self._running.values()):
                if running is not None:
                    running.cancel()
        if self.events is not None:
            self.events.put(None)


def _step_error(label: str, step: Step, error: Exception) -> ServingError:
    """What an ensemble says of a step's error: the same kind of error, with the step's name."""
    if isinstance(error, ServingError):
        return type(error)(f"{label}: {step}: {error.message}", field=error.field)
    return ExecutionError(f"{label}: {step}: {type(error).__name__}: {error}")


def _chain(inputs: Sequence[str], outputs: Sequence[str], steps: Sequence[Step]) -> list[tuple[Step, list[str]]]:
    """The steps one after the other, each with the tensors that nothing needs after it; empty if two could run at once.

    Args:
        inputs: Names of the ensemble's inputs.
        outputs: Of its outputs.
        steps: The steps, checked.
    """
    ready, waiting = set(inputs), list(steps)
    line: list[Step] = []
    while waiting:
        able = [step for step in waiting if ready >= step.needs]
        if len(able) > 1:
            return []
        line += able
        waiting.remove(able[0])
        ready.update(able[0].outputs.values())
    last: dict[str, int] = {}
    for number, step in enumerate(line):
        last.update(dict.fromkeys((*step.needs, *step.outputs.values()), number))
    return [
        (step, [tensor for tensor, use in last.items() if use == number and tensor not in outputs])
        for number, step in enumerate(line)
    ]


def _make_step(number: int, model: Served, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> Step:
    return Step(
        number,
        model,
        inputs,
        outputs,
        needs=frozenset(inputs.values()),
        feeds=tuple((spec.name, inputs[spec.name]) for spec in model.config.inputs if spec.name in inputs),
        wanted=tuple(spec.name for spec in model.config.outputs if spec.name in outputs),
    )


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
            if spec.name not in step.inputs and not spec.is_optional:
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
            if spec.name not in step.inputs:
                continue
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
