# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
#
# One file, three images: --target operator | deviceplugin | examples.
# The build is offline: `make wheels` puts every dependency, checked against the hashes in
# requirements/, and the product's own wheel into build/wheels/ARCHITECTURE first. Builders set
# TARGETARCH (amd64, arm64) from --platform. BASE has no default: a tag names another image every
# week, so give one with its digest.
ARG BASE

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

# What an image ends as: Python, and nothing that gives who gets into a container more than it
# came with. Programs run in exec form from here on: there is no shell. The list of packages stays
# for those who scan the image.
FROM ${BASE} AS bare
RUN rm -rf /usr/share/python-wheels /usr/lib/python3*/ensurepip /usr/local/lib/python3*/ensurepip \
           /usr/local/lib/python3*/site-packages/pip* \
 && find / -xdev -type f -perm /6000 -delete \
 && find / -xdev ! -type d \( -path '*/bin/*' -o -path '*/sbin/*' \) \
      \( -name sh -o -name '*bash' -o -name dash -o -name ash -o -name ksh -o -name zsh \
         -o -name 'busybox*' -o -name 'perl*' -o -name 'apt*' -o -name 'dpkg*' -o -name 'debconf*' \
         -o -name 'pip' -o -name 'pip[0-9]*' \) -delete

FROM bare AS operator
COPY --from=operator-build /app /app
ENV PATH=/app/.venv/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
RUN ["ullage-operator", "--version"]
RUN ["python", "-m", "ullage_router", "--version"]
RUN ["python", "-m", "ullage_katib", "--version"]
USER 65532:65532
ENTRYPOINT ["ullage-operator"]

FROM bare AS deviceplugin
COPY --from=node-build /app /app
ENV PATH=/app/.venv/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
RUN ["ullage-node", "--version"]
# uid 0 for kubelet's sockets; the chart drops every capability
ENTRYPOINT ["ullage-node"]

FROM bare AS examples
COPY --from=examples-build /app /app
ENV PATH=/app/.venv/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PYTHONPATH=/app
USER 65532:65532
