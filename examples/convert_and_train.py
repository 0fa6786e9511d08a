"""Converts a table or folder of images, inspects the dataset, and trains for one step.

python examples/convert_and_train.py sample/labels.csv datasets
"""

import sys

import recordmill


def main(images: str, output: str) -> float:
    """Returns the loss of the first training step.

    Args:
        images: a table or a folder of images.
        output: folder of datasets.
    """
    import keras

    dataset = recordmill.convert(images, output=output, name="shapes", max_rejects="10%")
    for reject in dataset.rejects():
        print(reject["source"], reject["reason"], reject["detail"])
    key = dataset.records.keys()[0]
    record = dataset.records[key]
    print(f"{key}: label {record['label']}, image {record['image'].shape}")

    train = dataset.load("train", batch_size=32, image_size=64, shuffle=True, as_supervised=True)
    layers = [keras.layers.Rescaling(1 / 255), keras.layers.Flatten(), keras.layers.Dense(1000)]
    model = keras.Sequential(layers)
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return float(model.fit(train, steps_per_epoch=1, shuffle=False, verbose=0).history["loss"][0])


if __name__ == "__main__":
    print("loss:", main(*sys.argv[1:]))
