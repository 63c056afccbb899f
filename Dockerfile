# The dashboard without torch: what it reads are records. Build from a checkout:
#   docker build -t gapless-dashboard .
#   docker run -p 127.0.0.1:8501:8501 -v "$PWD/results:/results:ro" gapless-dashboard
# It listens inside the container on every address and lets in whoever can reach the port, so the
# line above publishes the port on loopback only. For a team, mount
# /home/gapless/.streamlit/secrets.toml with an [auth] section and give `dashboard --public` as the
# command, which asks for a login; or put it behind a proxy of your own.
FROM python:3.12-slim

WORKDIR /src
COPY . .
RUN python -c "import tomllib; extras = tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']; print('\n'.join(extras['dashboard']))" > /tmp/requirements.txt \
    && pip install --no-cache-dir -c constraints.txt -r /tmp/requirements.txt \
    && pip install --no-cache-dir --no-deps . \
    && rm -rf /src/* \
    && useradd --create-home gapless

USER gapless
WORKDIR /home/gapless
ENV GAPLESS_STORE=/results
EXPOSE 8501
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s \
    CMD ["python", "-c", "import urllib.request; assert urllib.request.urlopen('http://127.0.0.1:8501/_stcore/health', timeout=4).read() == b'ok'"]
ENTRYPOINT ["gapless"]
CMD ["dashboard", "--public", "--no-auth", "--no-browser", "--port", "8501"]
