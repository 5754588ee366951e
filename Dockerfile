# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
#
# One file, three images: --target operator | deviceplugin | examples.
# The build is offline: `make wheels` puts every dependency, checked against the hashes in
# requirements/, and the product's own wheel into build/wheels/ARCHITECTURE first. Builders set
# TARGETARCH (amd64, arm64) from --platform.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS venv
ARG TARGETARCH
RUN python3 -m venv /app/.venv
COPY requirements /src/requirements
COPY build/wheels/${TARGETARCH} /src/wheels

FROM venv AS operator-build
RUN /app/.venv/bin/pip install --no-index --no-compile --find-links /src/wheels --require-hashes -r /src/requirements/operator.txt -r /src/requirements/router.txt \
 && /app/.venv/bin/pip install --no-index --no-compile --no-deps --find-links /src/wheels ullage \
 && /app/.venv/bin/pip uninstall --yes --quiet pip \
 && python3 -m compileall -q /app/.venv

FROM venv AS node-build
RUN /app/.venv/bin/pip install --no-index --no-compile --find-links /src/wheels --require-hashes -r /src/requirements/node.txt \
 && /app/.venv/bin/pip install --no-index --no-compile --no-deps --find-links /src/wheels ullage \
 && /app/.venv/bin/pip uninstall --yes --quiet pip \
 && python3 -m compileall -q /app/.venv

FROM venv AS examples-build
RUN /app/.venv/bin/pip install --no-index --no-compile --find-links /src/wheels --require-hashes -r /src/requirements/examples.txt -r /src/requirements/router.txt \
 && /app/.venv/bin/pip install --no-index --no-compile --no-deps --find-links /src/wheels ullage \
 && /app/.venv/bin/pip uninstall --yes --quiet pip
COPY examples/digits /app/digits
COPY examples/encoder /app/encoder
COPY examples/generative /app/generative
# only the digits are wanted of scikit-learn, not 150 MB of code
RUN cp /app/.venv/lib/python3*/site-packages/sklearn/datasets/data/digits.csv.gz /app/digits/ \
 && rm -rf /app/.venv/lib/python3*/site-packages/sklearn* /app/.venv/lib/python3*/site-packages/scikit_learn* \
           /app/.venv/lib/python3*/site-packages/scipy* /app/.venv/lib/python3*/site-packages/joblib* \
           /app/.venv/lib/python3*/site-packages/narwhals* /app/.venv/lib/python3*/site-packages/threadpoolctl* \
 && python3 -m compileall -q /app

FROM ${BASE} AS operator
COPY --from=operator-build /app /app
ENV PATH=/app/.venv/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
RUN ullage-operator --version && python -m ullage_run.router --version && python -m ullage.katib --version
USER 65532:65532
ENTRYPOINT ["ullage-operator"]

FROM ${BASE} AS deviceplugin
COPY --from=node-build /app /app
ENV PATH=/app/.venv/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
RUN ullage-node --version
# uid 0 for kubelet's sockets; the chart drops every capability
ENTRYPOINT ["ullage-node"]

FROM ${BASE} AS examples
COPY --from=examples-build /app /app
ENV PATH=/app/.venv/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PYTHONPATH=/app
USER 65532:65532
