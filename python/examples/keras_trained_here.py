import numpy as np
import keras
from keras import layers
import tightfit as tf_

x = np.random.default_rng(0).integers(0, 256, (64, 224, 224, 3), np.uint8)
y = np.random.default_rng(1).integers(0, 10, 64)

inputs = keras.Input((224, 224, 3))
h = layers.Rescaling(1 / 255)(inputs)
for filters in (64, 128, 256, 512):
    for _ in range(2):
        h = layers.Conv2D(filters, 3, padding="same", use_bias=False)(h)
        h = layers.BatchNormalization()(h)
        h = layers.ReLU()(h)
    h = layers.MaxPooling2D()(h)
outputs = layers.Dense(10, activation="softmax")(layers.GlobalAveragePooling2D()(h))
model = keras.Model(inputs, outputs)
model.compile(optimizer=keras.optimizers.SGD(0.01, momentum=0.9), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
trained = tf_.Model.from_keras(model)
trained.compile(metrics=["accuracy"], budget="1GiB")
trained.fit(x, y, batch_size=32, epochs=1)
trained.to_keras(model)
model.save("trained.keras")
