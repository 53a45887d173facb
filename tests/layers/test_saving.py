"""Entries go wherever weights go, and weights go as if there were no entries."""

from itertools import chain

import keras
import numpy as np
import pytest
from tuning_data import ELSEWHERE, HERE, KINDS, build, content, entries, fill, make_record, tuned_layers

from keras_tunedconv import TuningCallback
from keras_tunedconv.core import registry
from keras_tunedconv.core.errors import TuningWarning
from keras_tunedconv.layers.tuned_conv2d import TunedConv2D
from keras_tunedconv.tuning.schema import encode

Conv2D = keras.layers.Conv2D
BACKEND = keras.backend.backend()
SHARD_SUFFIX = ".weights.json"


def filled(kind="functional", **fields):
    model = build(kind, TunedConv2D)
    fill(model, **fields)
    return model


def save(model, path):
    if path.name.endswith(SHARD_SUFFIX):
        model.save_weights(path, max_shard_size=1)
    elif path.name.endswith(".keras"):
        model.save(path)
    else:
        model.save_weights(path)


def assert_same_weights(first, second):
    for one, other in zip(first.get_weights(), second.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


# ---- every way of saving ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["m.weights.h5", "m.weights.json"])
def test_weights_files_carry_entries(kind, name, tmp_path):
    model = filled(kind)
    save(model, tmp_path / name)
    registry.clear()
    twin = build(kind, TunedConv2D)
    twin.load_weights(tmp_path / name)
    assert_same_weights(model, twin)
    assert entries(twin) == entries(model)
    assert content(registry.collect()[0]) == content(chain(*entries(model)))


@pytest.mark.parametrize("kind", ["functional", "sequential"])
def test_model_files_carry_entries(kind, tmp_path):
    model = filled(kind)
    model.save(tmp_path / "m.keras")
    registry.clear()
    twin = keras.models.load_model(tmp_path / "m.keras")
    assert [type(layer) for layer in tuned_layers(twin)] == [TunedConv2D, TunedConv2D]
    assert_same_weights(model, twin)
    assert entries(twin) == entries(model)
    third = build(kind, TunedConv2D)
    third.load_weights(tmp_path / "m.keras")
    assert entries(third) == entries(model)


def test_unpacked_model_folders_carry_entries(tmp_path):
    model = filled()
    model.save(tmp_path / "folder", zipped=False)
    assert entries(keras.models.load_model(tmp_path / "folder")) == entries(model)


def test_saving_takes_in_what_came_after_the_last_step(tmp_path):
    model = filled()
    late = make_record(entries(model)[0][0].key.replace("8x", "3x"), algorithm="late")
    registry.put(late)
    model.save_weights(tmp_path / "m.weights.h5")
    twin = build("functional", TunedConv2D)
    twin.load_weights(tmp_path / "m.weights.h5")
    assert "late" in [record.algorithm for record in entries(twin)[0]]


def test_entries_of_other_environments_go_along(tmp_path):
    model = filled(environment=ELSEWHERE)
    model.save_weights(tmp_path / "there.weights.h5")
    registry.clear()
    here = build("functional", TunedConv2D)
    here.load_weights(tmp_path / "there.weights.h5")
    registry.clear()
    fill(here)
    here.save_weights(tmp_path / "both.weights.h5")
    registry.clear()
    last = build("functional", TunedConv2D)
    last.load_weights(tmp_path / "both.weights.h5")
    assert {record.environment for record in entries(last)[0]} == {HERE, ELSEWHERE}
    assert [len(records) for records in entries(last)] == [6, 6]


def test_without_entries_the_file_is_the_stock_layers(tmp_path):
    import h5py

    def paths(layer_class):
        build("functional", layer_class).save_weights(tmp_path / "m.weights.h5")
        names = []
        with h5py.File(tmp_path / "m.weights.h5") as opened:
            opened.visit(names.append)
        return names

    assert paths(TunedConv2D) == paths(Conv2D)


def test_shared_layers_are_saved_once(tmp_path):
    layer = TunedConv2D(3, 3, padding="same")
    inputs = keras.Input((16, 16, 3))
    model = keras.Model(inputs, layer(layer(inputs)))
    fill(model)
    model.save(tmp_path / "m.keras")
    twin = keras.models.load_model(tmp_path / "m.keras")
    assert len(tuned_layers(twin)) == 1
    assert entries(twin) == entries(model)


def test_nested_models_and_wrappers_carry_entries(tmp_path):
    inner = keras.Sequential([keras.Input((16, 16, 3)), TunedConv2D(3, 3)], name="inner")
    inputs = keras.Input((5, 16, 16, 3))
    model = keras.Model(inputs, keras.layers.TimeDistributed(inner)(inputs))
    fill(model)
    model.save(tmp_path / "m.keras")
    twin = keras.models.load_model(tmp_path / "m.keras")
    assert len(entries(twin)[0]) == 3
    assert entries(twin) == entries(model)


def test_lora_layers_carry_entries(tmp_path):
    model = filled("sequential")
    for layer in tuned_layers(model):
        layer.enable_lora(2)
    model.save(tmp_path / "m.keras")
    assert entries(keras.models.load_model(tmp_path / "m.keras")) == entries(model)


# ---- stock and tuned -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["m.weights.h5", "m.weights.json"])
@pytest.mark.parametrize(
    "classes", [(Conv2D, TunedConv2D), (TunedConv2D, Conv2D)], ids=["to tuned", "to stock"]
)
def test_weights_files_are_interchangeable(kind, name, classes, tmp_path):
    source, target = (build(kind, layer_class) for layer_class in classes)
    if classes[0] is TunedConv2D:
        fill(source)
    save(source, tmp_path / name)
    target.load_weights(tmp_path / name)
    assert_same_weights(source, target)


@pytest.mark.parametrize("kind", ["functional", "sequential"])
@pytest.mark.parametrize(
    "classes", [(Conv2D, TunedConv2D), (TunedConv2D, Conv2D)], ids=["to tuned", "to stock"]
)
def test_weights_of_model_files_are_interchangeable(kind, classes, tmp_path):
    source, target = (build(kind, layer_class) for layer_class in classes)
    if classes[0] is TunedConv2D:
        fill(source)
    source.save(tmp_path / "m.keras")
    target.load_weights(tmp_path / "m.keras")
    assert_same_weights(source, target)


@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize(
    "classes", [(Conv2D, TunedConv2D), (TunedConv2D, Conv2D)], ids=["to tuned", "to stock"]
)
def test_legacy_files_are_interchangeable(by_name, classes, tmp_path):
    from keras.src.legacy.saving import legacy_h5_format  # what `load_weights("….h5")` calls

    keras.utils.clear_session()
    source = build("functional", classes[0])
    keras.utils.clear_session()
    target = build("functional", classes[1])
    if classes[0] is TunedConv2D:
        fill(source)
    import h5py

    with h5py.File(tmp_path / "m.h5", "w") as opened:
        legacy_h5_format.save_weights_to_hdf5_group(opened, source)
    target.load_weights(tmp_path / "m.h5", by_name=by_name)
    assert_same_weights(source, target)


def test_skip_mismatch_loads_what_fits(tmp_path):
    model = filled("sequential")
    model.save_weights(tmp_path / "m.weights.h5")
    registry.clear()
    other = keras.Sequential(
        [keras.Input((16, 16, 3)), TunedConv2D(4, 3, padding="same"), TunedConv2D(7, 3, strides=2)]
    )
    with pytest.warns(UserWarning, match="could not be loaded"):
        other.load_weights(tmp_path / "m.weights.h5", skip_mismatch=True)
    np.testing.assert_array_equal(other.layers[0].get_weights()[0], model.layers[0].get_weights()[0])
    assert entries(other)[0] == entries(model)[0]


# ---- shards ----------------------------------------------------------------------------------------


def shards(model, path, bytes_each):
    model.save_weights(path, max_shard_size=bytes_each / 1024**3)
    return sorted(path.parent.glob("*_*.weights.h5"))


@pytest.mark.parametrize("bytes_each", [1000, 1300, 1500, 1700, 1900, 2100, 2300, 2600])
def test_entries_survive_shards_of_any_size(bytes_each, tmp_path):
    model = filled()
    assert len(shards(model, tmp_path / "m.weights.json", bytes_each)) > 1
    twin = build("functional", TunedConv2D)
    twin.load_weights(tmp_path / "m.weights.json")
    assert_same_weights(model, twin)
    assert entries(twin) == entries(model)


def test_some_shard_size_parts_the_columns_of_a_layer(tmp_path):
    """The case above would prove little if it never happened."""
    import h5py

    parted = 0
    for i, bytes_each in enumerate(range(1000, 2600, 100)):
        folder = tmp_path / str(i)
        folder.mkdir()
        for file in shards(filled(), folder / "m.weights.json", bytes_each):
            with h5py.File(file) as opened:
                groups = []
                opened.visit(lambda name: groups.append(name) if name.endswith("tuning/vars") else None)  # noqa: B023
                parted += any(len(opened[name]) == 1 for name in groups)
        registry.clear()
    assert parted > 0


def test_shards_too_small_for_entries_keep_the_weights(tmp_path):
    model = filled()
    for batch in range(10, 14):
        fill(model, batch=batch)
    with pytest.warns(TuningWarning, match="a shard holds"):
        shards(model, tmp_path / "m.weights.json", 950)
    twin = build("functional", TunedConv2D)
    twin.load_weights(tmp_path / "m.weights.json")
    assert_same_weights(model, twin)


# ---- callbacks of Keras's --------------------------------------------------------------------------


def trained(callbacks, tmp_path, **compile_arguments):
    model = build("sequential", TunedConv2D)
    optimizer = keras.optimizers.SGD(1e-3, **compile_arguments)
    model.compile(optimizer, "mse")
    fill(model)
    fit(model, callbacks)
    return model


def fit(model, callbacks):
    x, y = np.ones((8, 16, 16, 3), "float32"), np.ones((8, model.output_shape[1]), "float32")
    model.fit(x, y, epochs=2, batch_size=4, verbose=0, callbacks=callbacks, validation_data=(x, y))


CHECKPOINTS = {
    "each epoch": {},
    "weights": {"save_weights_only": True},
    "batches": {"save_freq": 1},
    "weights, batches": {"save_weights_only": True, "save_freq": 2},
    "best": {"save_best_only": True, "monitor": "loss"},
    "best weights": {"save_best_only": True, "monitor": "val_loss", "save_weights_only": True},
    "best, highest": {
        "save_best_only": True,
        "monitor": "loss",
        "mode": "max",
        "initial_value_threshold": 0.0,
    },
}


def loaded(path):
    """The model in a file, or a model with its weights."""
    if path.name.endswith(".weights.h5"):
        model = build("sequential", TunedConv2D)
        model.load_weights(path)
        return model
    return keras.models.load_model(path)


def in_order(first, *callbacks):
    return [TuningCallback(), *callbacks] if first else [*callbacks, TuningCallback()]


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("mode", CHECKPOINTS)
def test_checkpoints_of_every_mode_carry_entries(mode, first, tmp_path):
    arguments = CHECKPOINTS[mode]
    path = tmp_path / ("m.weights.h5" if "save_weights_only" in arguments else "m.keras")
    model = trained(in_order(first, keras.callbacks.ModelCheckpoint(path, **arguments)), tmp_path)
    assert entries(loaded(path)) == entries(model)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("frequency", ["epoch", 1])
def test_backups_carry_entries_and_bring_them_back(frequency, first, tmp_path):
    def backup():
        return keras.callbacks.BackupAndRestore(
            tmp_path / "backup", save_freq=frequency, double_checkpoint=True, delete_checkpoint=False
        )

    before = trained(in_order(first, backup()), tmp_path)
    for name in ("latest.weights.h5", "latest.weights.h5.bkp"):
        assert len(groups_of_entries(tmp_path / "backup" / name)) == 2
    registry.clear()
    restored = build("sequential", TunedConv2D)
    restored.compile(keras.optimizers.SGD(1e-3), "mse")
    fit(restored, in_order(first, backup()))
    assert entries(restored) == entries(before)


def groups_of_entries(path):
    import h5py

    names = []
    with h5py.File(path) as opened:
        opened.visit(names.append)
    return [name for name in names if name.endswith("tuning/vars/numbers")]


@pytest.mark.parametrize("swap", [{"swap_on_epoch": True}, {"swap_on_epoch": False}])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_averaged_weights_carry_entries_in_any_order(place, swap, tmp_path):
    path = tmp_path / "m.weights.h5"
    callbacks = [
        keras.callbacks.SwapEMAWeights(**swap),
        keras.callbacks.ModelCheckpoint(path, save_weights_only=True),
    ]
    callbacks.insert(place, TuningCallback())
    model = trained(callbacks, tmp_path, use_ema=True)
    assert entries(loaded(path)) == entries(model)
    model.save(tmp_path / "m.keras")
    assert entries(loaded(tmp_path / "m.keras")) == entries(model)


def test_the_callback_does_not_change_averaged_weights(tmp_path):
    def weights(with_callback):
        keras.utils.set_random_seed(3)
        swap = keras.callbacks.SwapEMAWeights(swap_on_epoch=False)
        model = trained(in_order(True, swap) if with_callback else [swap], tmp_path, use_ema=True)
        return model.get_weights()

    for one, other in zip(weights(True), weights(False), strict=True):
        np.testing.assert_array_equal(one, other)


def test_entries_of_later_steps_are_in_later_files(tmp_path):
    """What comes between two saves of one run is in the second."""

    class Late(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            fill(self.model, batch=20 + batch)

    path = tmp_path / "m_{epoch}_{batch}.weights.h5"  # in the order of their names
    checkpoint = keras.callbacks.ModelCheckpoint(path, save_weights_only=True, save_freq=1)
    trained([Late(), checkpoint, TuningCallback()], tmp_path)
    files = sorted(tmp_path.glob("*.h5"))
    counts = [sum(record.environment == HERE for record in entries(loaded(file))[0]) for file in files]
    assert counts == [6, 9, 9, 9]  # two batches each epoch; the second epoch's are known


# ---- size ------------------------------------------------------------------------------------------


def test_a_layer_takes_what_leaves_resnet50_below_128_kilobytes(tmp_path):
    """53 layers of this kind, in the size that a file grows by."""
    model = keras.Sequential(
        [keras.Input((16, 16, 3)), *(TunedConv2D(3, 3, padding="same") for _ in range(20))]
    )
    model.save_weights(tmp_path / "plain.weights.h5")
    plain = (tmp_path / "plain.weights.h5").stat().st_size
    environment = (
        "engine=onednn;version=3.2;cpu=GenuineIntel 6/143/8;isa=avx512_core_amx;threads=2;~patch=0" + "x" * 40
    )
    for layer in tuned_layers(model):
        records = [
            make_record(
                f"{direction}|x=float32:nhwc:128x1024x112x112|w=float32:hwio:2048x1024x3x3|"
                "y=float32:nhwc:128x2048x112x112|pad=1,1:1,1|stride=1,1|dilation=1,1|groups=1|"
                "mode=cross_correlation|compute=float32|tf32=0|deterministic=0|epilogue=none",
                environment=environment,
                algorithm=f"{direction}+brgconv:avx512_core_amx#1",
                runner_up=f"{direction}+jit_1x1:avx512_core#2",
            )
            for direction in ("forward", "backward_data", "backward_filter")
        ]
        layer.tuning.load_own_variables(dict(encode(records).items()))
        assert len(layer.tuning.records()) == 3
    model.save_weights(tmp_path / "tuned.weights.h5")
    grown = (tmp_path / "tuned.weights.h5").stat().st_size - plain
    assert grown / 20 * 53 < 128_000
