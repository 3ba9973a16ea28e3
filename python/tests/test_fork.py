import os
import signal

import pytest


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_forked_process_is_told_and_does_not_hang(mlp, points):
    model = mlp()
    model.fit(*points, batch_size=32, epochs=1, verbose=0)
    child = os.fork()
    if child == 0:
        # 14 where it is told, as it should be.
        signal.alarm(20)
        try:
            model.predict(points[0])
        except RuntimeError as error:
            if "forked" not in str(error):
                os._exit(3)
            del model
            os._exit(14)
        os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 14
    assert model.predict(points[0]).shape == (96, 3)
